package login_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logintest"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/login"
)

func TestSigningIn(t *testing.T) {
	t.Parallel()
	issuer := logintest.New(t)
	l := login.New(issuer.Login("http://127.0.0.1:1/back"))
	address, a, err := l.Begin(t.Context())
	require.NoError(t, err)
	for _, secret := range []string{a.Verifier, logintest.Secret} {
		require.NotContains(t, address, secret)
	}
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
	_, err = l.Finish(t.Context(), access.Attempt{State: a.State, Nonce: "other", Verifier: a.Verifier}, a.State,
		issuer.Visit(t, address).Get("code"))
	require.ErrorIs(t, err, access.ErrAttempt, "another nonce")
	tokens, err := l.Finish(t.Context(), a, a.State, back.Get("code"))
	require.NoError(t, err)
	require.Len(t, tokens, 2)
	_, err = l.Finish(t.Context(), a, a.State, back.Get("code"))
	require.ErrorIs(t, err, access.ErrAttempt, "a code counts once")
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
	u, err := url.Parse(address)
	require.NoError(t, err)
	require.Equal(t, "S256", u.Query().Get("code_challenge_method"))
	back := issuer.Visit(t, address)
	issuer.Down.Store(true)
	_, err = l.Finish(t.Context(), a, a.State, back.Get("code"))
	require.ErrorIs(t, err, access.ErrIssuer)
	require.Equal(t, http.StatusBadGateway, issuer.Status(t))
}
