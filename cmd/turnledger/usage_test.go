package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/certtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// runHere runs a command line in this process, and returns its status and output.
func runHere(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr strings.Builder
	code = run(t.Context(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// A wrong argument ends with the status of wrong use, whether the command line, the verb or the server finds it, and
// prints nothing. Where the line could be about several arguments, the message names the one.
func TestABadValueIsWrongUse(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(t)})
	p.LinkIdentity(t, "s", "ada")
	id, dir := p.RecordTurn(t, "s", "r", "question", "answer"), t.TempDir()
	keys := "keys:" + filepath.Join(dir, "keys.json")
	for _, c := range []struct{ line, says string }{
		{"replay --from BAD", ""}, {"replay --from 9:1", ""}, {"replay --to 0:x", ""}, {"replay --session ..", ""},
		{"replay --type BAD", "turnledger.turn.started.v1"}, {"replay --since BAD", ""}, {"replay --format BAD", ""},
		{"replay --turns --follow", ""}, {"replay --follow --format parquet", ""}, {"replay -o " + dir, ""},
		{"context s m --max-messages 1", ""}, {"context s m --language BAD", ""}, {"context s m --format BAD", ""},
		{"context s m --as-of BAD", ""},
		{"history ..", ""}, {"history s --limit BAD", ""}, {"history s --url BAD", ""},
		{"explain s BAD", ""}, {"explain s " + id + " --idle-timeout BAD", ""},
		{"link s ..", ""}, {"redact .. " + id + " --yes", ""}, {"export --identity ..", ""},
		{"erase", ""}, {"erase .. --yes", ""}, {"erase s --identity ada", ""}, {"retention --dry-run=BAD", ""},
		{"projections verify --sample BAD", ""}, {"deadletters show recent BAD", ""},
		{"deadletters retry audit BAD", ""}, {"deadletters drop audit 0:4", "--reason"},
		{"streams plan --replicas 9", "from 1 to 5"}, {"streams apply --replicas 9", ""},
		{"backup s3://", ""}, {"import --parallel 0 file", ""},
		{"search ?", "word to search for"}, {"search -- -question", "word to search for"}, {"search", "query"},
		{"search question --cursor BAD", "cursor"}, {"search question --mode BAD", "mode"},
		{"search question --language BAD", "language"}, {"search question --in BAD", "--in"},
		{"search question --since BAD", "--since"}, {"search question --identity ..", "identity_id"},
		{"sessions list --cursor BAD", "cursor"}, {"sessions list --until BAD", "--until"},
		{"sessions list --metadata BAD", "--metadata"}, {"sessions list --limit BAD", "--limit"},
		{"sessions list --identity ..", "identity_id"}, {"sessions show ..", "session_id"},
		{"sessions describe s", "title"}, {"sessions describe s --title " + strings.Repeat("x", 201), "title"},
		{"sessions describe s --metadata k=" + strings.Repeat("x", 513), "metadata"},
		{"sessions fork s --turn " + id + " --before " + id, "--before"},
		{"stats --bucket BAD", "--bucket"}, {"stats --by BAD", "--by"}, {"stats --since 1990-01-01T00:00:00Z", "since"},
		{"keys list --auth BAD", ""}, {"keys create n", ""}, {"keys create n --scopes BAD --auth " + keys, ""},
		{"keys create n --scopes turns:read", ""}, {"keys create n --scopes admin --identity ada", ""},
		{"keys create n --scopes admin --expires BAD --auth " + keys, ""},
		{"keys create n --scopes admin --auth tl_astray00_SECRET", ""}, {"keys revoke n --auth keys:", ""},
	} {
		line, words, found := strings.Cut(c.line, " -- ")
		args := strings.Fields(line)
		if args[0] != "keys" && !strings.Contains(line, "--url") {
			args = append(args, "--url", p.URL)
		}
		if found {
			args = append(args, "--", words)
		}
		code, out, errs := runHere(t, args...)
		require.Equal(t, exitUsage, code, "%s: %s%s", c.line, out, errs)
		require.Contains(t, errs, c.says, c.line)
		require.Empty(t, out, c.line)
		require.NotContains(t, errs, "unknown flag", c.line)
		require.NotContains(t, errs, "SECRET", c.line)
	}
	// What there is not, here, is no wrong use.
	for line, want := range map[string]string{"projections rebuild nothing --yes": "",
		"search question --mode meaning": "index_unavailable"} {
		code, _, errs := runHere(t, append(strings.Fields(line), "--url", p.URL)...)
		require.Equal(t, exitFailed, code, errs)
		require.Contains(t, errs, want)
	}
	full := must.Get(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
	defer func() { _ = full.Close() }()
	for _, line := range []string{"history s", "context s m", "projections list", "version"} {
		t.Run("a full disk for the output of "+line, func(t *testing.T) {
			args := strings.Fields(line)
			if line != "version" {
				args = append(args, "--url", p.URL)
			}
			var errs strings.Builder
			require.Equal(t, exitFailed, run(t.Context(), args, full, &errs))
			require.Contains(t, errs.String(), "no space left on device")
		})
	}
}

// A configuration that can't work is refused at the start, with what to set.
func TestConfigurationThatCannotWork(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	cert, key := ca.Issue("server")
	_, otherKey := ca.Issue("other")
	const issuer = "--auth oidc:https://login.example.org"
	const open = "without authentication"
	lines := map[string]string{
		"--tls-cert " + cert:                                                 "TURNLEDGER_TLS_KEY",
		"--tls-cert " + cert + " --tls-key " + otherKey:                      "no certificate (PEM) with its key",
		"--tls-cert " + cert + "x --tls-key " + key:                          "TURNLEDGER_TLS_CERT",
		"--redis-url rediss://127.0.0.1:1 --redis-ca " + key:                 "TURNLEDGER_REDIS_CA",
		"--redis-url redis://127.0.0.1:1 --redis-ca " + cert:                 "rediss://",
		"--nats-creds " + key:                                                "TURNLEDGER_NATS_URL",
		"--nats-cert " + cert + " --nats-key " + key:                         "nobody to be shown to",
		"--nats-listen 0.0.0.0:0 --nats-cert " + cert + " --nats-key " + key: "put credentials into it",
		"--listen 0.0.0.0:0 --tls-cert " + cert + " --tls-key " + key:        "TURNLEDGER_AUTH",
		issuer: "TURNLEDGER_AUTH_AUDIENCE",
		issuer + " --auth-audience a --auth-algorithms none":                      "no algorithm",
		"--auth oidc:http://login.example.org --auth-audience a":                  "https",
		"--auth tl_astray00_SECRET":                                               "must be keys:FILE",
		"--listen 0.0.0.0:0 --auth keys:" + filepath.Join(t.TempDir(), "no.file"): "turnledger keys create",
		"--listen 0.0.0.0:0":                                                      "turnledger keys create",
		"--nats-listen abc":                                                       "want host:port",
		"--nats-listen 0.0.0.0:0":                                                 "put credentials into it",
		"--nats-url nats://u:SECRET@[bad":                                         "want nats://",
		"--session-ttl 29m":                                                       "between 30m and 90d",
		"--session-ttl 91d":                                                       "between 30m and 90d",
		"--model-silence 3m":                                                      "at most 2m",
		"--redis-url redis://:SECRET@h --recent-shadow redis://:SECRET@h":         "is the first view itself",
		"--partitions 3":                                                          "power of two",
		"--http-max-body 1B":                                                      "TURNLEDGER_HTTP_MAX_BODY",
		"--http-header-timeout off":                                               "TURNLEDGER_HTTP_HEADER_TIMEOUT",
	}
	for _, roles := range []string{"api,context", "context,api,recent", "api,context,eraser"} {
		lines["--listen 0.0.0.0:0 --roles "+roles] = open
	}
	for _, role := range []string{"api", "context", "recent", "audit", "eraser", "chat"} {
		lines[fmt.Sprintf("--listen [::]:0 --roles %s --nats-url nats://127.0.0.1:1 --redis-url redis://127.0.0.1:1 "+
			"--postgres-url postgres://127.0.0.1:1/x --model-url http://127.0.0.1:1 --model-name m", role)] = open
	}
	for line, says := range lines {
		args := []string{"serve", "--data-dir", filepath.Join(t.TempDir(), "data")}
		if !strings.Contains(line, "--listen ") {
			args = append(args, "--listen", "127.0.0.1:0")
		}
		code, out, errs := runHere(t, append(args, strings.Fields(line)...)...)
		require.Equal(t, exitUsage, code, "%s: %s", line, errs)
		require.Contains(t, errs, says, line)
		require.NotContains(t, out+errs, "SECRET", line)
	}
}
