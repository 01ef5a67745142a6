package certfile_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/certtest"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services/access/certfile"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

// shown is the serial number of the certificate that a listener would show.
func shown(t *testing.T, p *certfile.Pair) string {
	t.Helper()
	c := must.Get(p.Server().GetCertificate(&tls.ClientHelloInfo{}))(t)
	require.Equal(t, c, must.Get(p.Client().GetClientCertificate(&tls.CertificateRequestInfo{}))(t))
	return c.Leaf.SerialNumber.String()
}

// A certificate is replaced file by file. In between it does not fit its key, and the
// former one is shown; so it is while a file is broken or gone.
func TestACertificateIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	cert, key := ca.Issue("server")
	nextCert, nextKey := ca.Issue("next")
	endedCert, endedKey := ca.IssueFor("ended", -time.Minute)
	move := func(from, to string) {
		t.Helper()
		raw := must.Get(os.ReadFile(from))(t)
		require.NoError(t, os.WriteFile(to, raw, 0o600))
	}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		// The bubble's clock stands in 2000, so that no certificate has ended.
		p := must.Get(certfile.Open(certfile.Config{Cert: cert, Key: key, Every: time.Second,
			Logger: slog.New(slog.NewTextHandler(&log, nil))}))(t)
		first := shown(t, p)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		look := func() string {
			t.Helper()
			<-time.After(1100 * time.Millisecond)
			synctest.Wait()
			return shown(t, p)
		}
		move(nextCert, cert)
		require.Equal(t, first, look(), "the certificate came before its key")
		move(nextKey, key)
		second := look()
		require.NotEqual(t, first, second)
		require.Contains(t, log.String(), "was read again")
		for _, broken := range []string{"", "-----BEGIN CERTIFICATE-----\nSECRET\n-----END CERTIFICATE-----\n"} {
			require.NoError(t, os.WriteFile(cert, []byte(broken), 0o600))
			require.Equal(t, second, look())
		}
		require.NoError(t, os.Remove(key))
		require.Equal(t, second, look())
		require.Contains(t, log.String(), "can't be read again")
		require.NotContains(t, log.String(), "SECRET")
		stop()
		require.NoError(t, <-ended)
	})
	_, err := certfile.Open(certfile.Config{Cert: endedCert, Key: endedKey})
	require.ErrorContains(t, err, "renew it")
	_, err = certfile.Open(certfile.Config{Cert: nextCert, Key: endedKey})
	require.ErrorContains(t, err, "no certificate (PEM) with its key")
	require.ErrorContains(t, must.Err(certfile.Authorities(nextKey)), "holds no certificate")
	must.Get(certfile.Authorities(ca.File))(t)
}

func TestACertificateThatEndsSoonIsSpokenOf(t *testing.T) {
	t.Parallel()
	cert, key := certtest.New(t).Issue("server")
	var log bytes.Buffer
	p, err := certfile.Open(certfile.Config{Cert: cert, Key: key, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, p.Run(ctx))
	require.Contains(t, log.String(), "ends soon")
}
