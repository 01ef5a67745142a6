package systemtest_test

import (
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/certtest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// TestEveryConnectionCanUseTLS runs the binary with TLS on its own listener, and to a
// NATS and a Redis that ask for it.
func TestEveryConnectionCanUseTLS(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	natsURL, creds := startSecureNATS(t, ca)
	cert, key := ca.Issue("turnledger")
	redis := redistest.StartTLS(t, ca.File, cert, key)
	address := stack.FreeAddress(t)
	dir := t.TempDir()
	secret := filepath.Join(dir, "redis-url")
	require.NoError(t, os.WriteFile(secret, []byte(redis.TLSURL()+"\n"), 0o600))
	good := []string{
		"TURNLEDGER_TLS_CERT=" + cert, "TURNLEDGER_TLS_KEY=" + key, "TURNLEDGER_NATS_LISTEN=",
		"TURNLEDGER_NATS_URL=" + natsURL,
		"TURNLEDGER_NATS_CREDS=" + creds, "TURNLEDGER_NATS_CA=" + ca.File, "TURNLEDGER_NATS_CERT=" + cert,
		"TURNLEDGER_NATS_KEY=" + key,
		"TURNLEDGER_REDIS_URL_FILE=" + secret, "TURNLEDGER_REDIS_CA=" + ca.File,
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client()}}
	t.Cleanup(client.CloseIdleConnections)
	p := stack.LaunchAt(t, address, good, "serve", "--roles", "api,context,recent")
	p.URL = "https://" + address
	shown := func(path string) (int, string) {
		resp, err := client.Get(p.URL + path)
		if err != nil {
			return 0, ""
		}
		_ = resp.Body.Close()
		return resp.StatusCode, resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	hang.Until(t, func() bool { status, _ := shown("/readyz"); return status == http.StatusOK }, "%s", p.Log)

	path := stack.Binary(t)
	verb := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Env = append(os.Environ(), "TURNLEDGER_URL="+p.URL, "SSL_CERT_FILE="+ca.File)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	verb("import", "../../../docs/examples/questions.jsonl")
	hang.Until(t, func() bool {
		return strings.Contains(verb("projections", "list"), "live")
	}, "the view in Redis: %s", p.Log)

	nextCert, nextKey := ca.Issue("next")
	require.NoError(t, os.Rename(nextCert, cert))
	require.NoError(t, os.Rename(nextKey, key))
	hang.Until(t, func() bool {
		client.CloseIdleConnections()
		_, name := shown("/healthz")
		return name == "next"
	})
	p.Stop(t)
	seed := must.Get(os.ReadFile(creds))(t)
	for _, line := range strings.Split(string(seed), "\n") {
		if len(line) > 40 {
			require.NotContains(t, p.Log.String(), line)
		}
	}

	for name, wrong := range map[string]string{
		"no credentials":         "TURNLEDGER_NATS_CREDS=",
		"another authority":      "TURNLEDGER_NATS_CA=" + certtest.New(t).File,
		"no certificate to NATS": "TURNLEDGER_NATS_CERT=",
	} {
		env := append(good[:len(good):len(good)], wrong)
		if name == "no certificate to NATS" {
			env = append(env, "TURNLEDGER_NATS_KEY=")
		}
		p := stack.Launch(t, env, "serve", "--roles", "api,context,recent")
		require.Error(t, p.Cmd.Wait(), name)
		require.Contains(t, p.Log.String(), "are TURNLEDGER_NATS_URL and its credentials right?", name)
	}
}

// PostgreSQL and Redis must show a certificate of the configured authority, and the own NATS shows one. A store with
// another certificate gets neither our certificate nor any data.
func TestTheStoresAreReachedOverTLSOnly(t *testing.T) {
	t.Parallel()
	ca, other := certtest.New(t), certtest.New(t)
	cert, key := ca.Issue("turnledger")
	foreignCert, foreignKey := other.Issue("turnledger")
	address := pg.StartTLS(t, ca.File, cert, key)
	redis, shadow := redistest.StartTLS(t, ca.File, cert, key), redistest.StartTLS(t, ca.File, cert, key)
	env := func(authority, cert, key string) []string {
		return []string{
			"TURNLEDGER_POSTGRES_URL=" + address + "?sslmode=verify-full&sslrootcert=" + authority + "&sslcert=" +
				cert + "&sslkey=" + key,
			"TURNLEDGER_REDIS_URL=" + redis.TLSURL(), "TURNLEDGER_REDIS_CA=" + authority,
			"TURNLEDGER_RECENT_SHADOW=" + shadow.TLSURL(),
		}
	}
	listener := stack.FreeAddress(t)
	p := stack.Serve(t, append(env(ca.File, cert, key), "TURNLEDGER_NATS_LISTEN=nats://pipeline:pw@"+listener,
		"TURNLEDGER_NATS_CERT="+cert, "TURNLEDGER_NATS_KEY="+key, "TURNLEDGER_NATS_CA="+ca.File))
	p.LinkIdentity(t, "s", "u")
	p.RecordExchange(t, "s", 0)
	p.WaitCaughtUp(t, "audit", "recent", "recent-shadow")
	require.Equal(t, stack.Questions(1), p.AuditedQuestions(t, "u"))
	speaksTLS(t, ca, listener)
	p.Stop(t)
	require.NotContains(t, p.Log.String(), "pw@")

	for name, c := range map[string]struct {
		env  []string
		says string
	}{
		"their authority is not ours": {env(other.File, cert, key), "certificate signed by unknown authority"},
		"our authority is not theirs": {env(ca.File, foreignCert, foreignKey), "unknown certificate authority"},
		"PostgreSQL in clear": {[]string{"TURNLEDGER_POSTGRES_URL=" + address + "?sslmode=disable"},
			"no encryption"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := stack.Launch(t, c.env, "serve", "--data-dir", stack.DataDir(t))
			hang.Until(t, func() bool { return strings.Contains(p.Log.String(), c.says) }, "%s", p.Log)
			if p.Cmd.ProcessState == nil && strings.Contains(p.Log.String(), "serving") {
				status, _, err := p.Call(t.Context(), http.MethodGet, "/v1/identities/u/turns", nil)
				require.NoError(t, err)
				require.Equal(t, http.StatusServiceUnavailable, status)
			}
		})
	}
}

// speaksTLS: the embedded server's listener shows a certificate and asks its clients for one and for the password; the
// process itself needs none.
func speaksTLS(t *testing.T, ca *certtest.Authority, address string) {
	t.Helper()
	clientCert, clientKey := ca.Issue("pipeline")
	nc := must.Get(nats.Connect("tls://"+address, nats.UserInfo("pipeline", "pw"), nats.RootCAs(ca.File),
		nats.ClientCert(clientCert, clientKey)))(t)
	defer nc.Close()
	must.Get(nc.RequestMsg(stack.EventMessage(&events.TurnStarted{TurnID: events.TurnID("s", "r1"), SessionID: "s",
		RequestID: "r1", Question: events.Question{QuestionNeutral: "question 1"}}, ""), hang.Limit))(t)
	for name, opts := range map[string][]nats.Option{
		"no certificate": {nats.UserInfo("pipeline", "pw"), nats.RootCAs(ca.File)},
		"no password":    {nats.RootCAs(ca.File), nats.ClientCert(clientCert, clientKey)},
		"in clear":       {nats.UserInfo("pipeline", "pw")},
	} {
		require.Error(t, must.Err(nats.Connect("nats://"+address, opts...)), name)
	}
}

// startSecureNATS starts a server that takes only clients with a certificate of the authority and with
// credentials. It returns the server's address and a file of credentials.
func startSecureNATS(t *testing.T, ca *certtest.Authority) (url, creds string) {
	t.Helper()
	operator := must.Get(nkeys.CreateOperator())(t)
	account := must.Get(nkeys.CreateAccount())(t)
	user := must.Get(nkeys.CreateUser())(t)
	public := func(k nkeys.KeyPair) string {
		return must.Get(k.PublicKey())(t)
	}
	oc := jwt.NewOperatorClaims(public(operator))
	ac := jwt.NewAccountClaims(public(account))
	ac.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit,
		Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	accountJWT := must.Get(ac.Encode(operator))(t)
	userJWT := must.Get(jwt.NewUserClaims(public(user)).Encode(account))(t)
	seed := must.Get(user.Seed())(t)
	text := must.Get(jwt.FormatUserConfig(userJWT, seed))(t)
	creds = filepath.Join(t.TempDir(), "pipeline.creds")
	require.NoError(t, os.WriteFile(creds, text, 0o600))

	cert, key := ca.Issue("nats")
	pair := must.Get(tls.LoadX509KeyPair(cert, key))(t)
	resolver := &natsserver.MemAccResolver{}
	require.NoError(t, resolver.Store(public(account), accountJWT))
	system := must.Get(nkeys.CreateAccount())(t)
	systemJWT := must.Get(jwt.NewAccountClaims(public(system)).Encode(operator))(t)
	require.NoError(t, resolver.Store(public(system), systemJWT))
	ns := stack.StartNATS(t, natsserver.Options{
		TrustedOperators: []*jwt.OperatorClaims{oc}, AccountResolver: resolver, SystemAccount: public(system),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: ca.Pool,
			ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12},
		TLSVerify: true, TLSTimeout: 5,
	})
	return "tls://" + ns.Addr().String(), creds
}
