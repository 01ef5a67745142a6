package systemtest_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/jwt/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/certtest"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// startSecureNATS starts a server that takes only clients with a certificate of the authority and with
// credentials. It returns the server's address and a file of credentials.
func startSecureNATS(t *testing.T, ca *certtest.Authority) (url, creds string) {
	t.Helper()
	operator, err := nkeys.CreateOperator()
	require.NoError(t, err)
	account, err := nkeys.CreateAccount()
	require.NoError(t, err)
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	public := func(k nkeys.KeyPair) string {
		p, err := k.PublicKey()
		require.NoError(t, err)
		return p
	}
	oc := jwt.NewOperatorClaims(public(operator))
	ac := jwt.NewAccountClaims(public(account))
	ac.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit,
		Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	accountJWT, err := ac.Encode(operator)
	require.NoError(t, err)
	userJWT, err := jwt.NewUserClaims(public(user)).Encode(account)
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	text, err := jwt.FormatUserConfig(userJWT, seed)
	require.NoError(t, err)
	creds = filepath.Join(t.TempDir(), "pipeline.creds")
	require.NoError(t, os.WriteFile(creds, text, 0o600))

	cert, key := ca.Issue("nats")
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	resolver := &natsserver.MemAccResolver{}
	require.NoError(t, resolver.Store(public(account), accountJWT))
	system, err := nkeys.CreateAccount()
	require.NoError(t, err)
	systemJWT, err := jwt.NewAccountClaims(public(system)).Encode(operator)
	require.NoError(t, err)
	require.NoError(t, resolver.Store(public(system), systemJWT))
	ns := stack.StartNATS(t, natsserver.Options{
		TrustedOperators: []*jwt.OperatorClaims{oc}, AccountResolver: resolver, SystemAccount: public(system),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: ca.Pool,
			ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12},
		TLSVerify: true, TLSTimeout: 5,
	})
	return "tls://" + ns.Addr().String(), creds
}
