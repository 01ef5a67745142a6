package browser_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// withKey sends a key with each call.
type withKey struct{ key string }

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return http.DefaultTransport.RoundTrip(r)
}

// served runs turnledger serve with keys, and returns one that may do everything.
func served(t testing.TB) (p *stack.Process, key string) {
	t.Helper()
	program(t)
	auth := "keys:" + filepath.Join(t.TempDir(), "keys.json")
	code, key, errs := stack.Run(t, "keys", "create", "ops", "--auth", auth, "--scopes",
		"turns:write,context:read,events:read,turns:redact,admin")
	require.Equal(t, stack.ExitDone, code, errs)
	key = strings.TrimSpace(key)
	p = stack.Serve(t, []string{"TURNLEDGER_AUTH=" + auth, "TURNLEDGER_POSTGRES_URL=" + pg.URL(t)})
	p.Client = &http.Client{Transport: withKey{key}}
	return p, key
}

// openWith opens a window, and signs in with a key unless it is empty.
func openWith(t testing.TB, p *stack.Process, key string) *window {
	t.Helper()
	w := open(t, p.URL)
	if key != "" {
		w.visit("/console/", http.StatusUnauthorized)
		w.fill("#key", key)
		w.follow("form.signin button", http.StatusOK)
	}
	return w
}
