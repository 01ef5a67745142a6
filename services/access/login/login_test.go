package login_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logintest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/login"
)

func TestSigningIn(t *testing.T) {
	t.Parallel()
	issuer := logintest.New(t)
	l := login.New(issuer.Login("http://127.0.0.1:1/back"))
	address, a, err := l.Begin(t.Context())
	require.NoError(t, err)
	must.Lack(t, address, a.Verifier, logintest.Secret)
	back := issuer.Visit(t, address)
	require.Equal(t, a.State, back.Get("state"))

	for name, attempt := range map[string]access.Attempt{
		"another state":    {State: "other", Nonce: a.Nonce, Verifier: a.Verifier},
		"no attempt":       {},
		"another verifier": {State: a.State, Nonce: a.Nonce, Verifier: "other"},
	} {
		_, err := l.Finish(t.Context(), attempt, a.State, issuer.Visit(t, address).Get("code"))
		require.ErrorIs(t, err, access.ErrAttempt, name)
	}
	must.Fail(l.Finish(t.Context(), access.Attempt{State: a.State, Nonce: "other", Verifier: a.Verifier}, a.State,
		issuer.Visit(t, address).Get("code")))(t, access.ErrAttempt, "another nonce")
	require.Len(t, must.Get(l.Finish(t.Context(), a, a.State, back.Get("code")))(t), 2)
	must.Fail(l.Finish(t.Context(), a, a.State, back.Get("code")))(t, access.ErrAttempt, "a code counts once")
}

func TestAnIssuerThatIsDown(t *testing.T) {
	t.Parallel()
	issuer := logintest.New(t)
	l := login.New(issuer.Login("http://127.0.0.1:1/back"))
	issuer.Down.Store(true)
	_, _, err := l.Begin(t.Context())
	require.ErrorIs(t, err, access.ErrIssuer)
	issuer.Down.Store(false)
	address, a, err := l.Begin(t.Context())
	require.NoError(t, err)
	u := must.Get(url.Parse(address))(t)
	require.Equal(t, "S256", u.Query().Get("code_challenge_method"))
	back := issuer.Visit(t, address)
	issuer.Down.Store(true)
	must.Fail(l.Finish(t.Context(), a, a.State, back.Get("code")))(t, access.ErrIssuer)
	require.Equal(t, http.StatusBadGateway, issuer.Status(t))
}
