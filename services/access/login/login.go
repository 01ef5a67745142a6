// Package login signs people in at an OpenID Connect issuer: the authorization code flow with PKCE (RFC 7636). It keeps
// nothing: what belongs to one attempt goes to the browser and comes back.
package login

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/turnledger/turnledger/services/access"
)

// Config of a Login.
type Config struct {
	// Issuer is the address of the issuer. ClientID and ClientSecret are what it knows this program by.
	Issuer, ClientID, ClientSecret string
	// Redirect is the address to which the issuer sends people back; the issuer must know it.
	Redirect string
	// Scopes are asked for besides openid.
	Scopes []string
	Client *http.Client
}

// Login signs people in. Safe for concurrent use.
type Login struct {
	cfg Config

	mu       sync.Mutex
	provider *oidc.Provider // nil until the issuer has answered
}

// New makes a Login; it does no network I/O.
func New(cfg Config) *Login {
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: 10 * time.Second}
	}
	return &Login{cfg: cfg}
}

// discover asks the issuer once where its endpoints are.
func (l *Login) discover(ctx context.Context) (*oidc.Provider, *oauth2.Config, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.provider == nil {
		// The provider keeps the context for later requests.
		p, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), l.cfg.Client), l.cfg.Issuer)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", access.ErrIssuer, err)
		}
		l.provider = p
	}
	return l.provider, &oauth2.Config{
		ClientID: l.cfg.ClientID, ClientSecret: l.cfg.ClientSecret, Endpoint: l.provider.Endpoint(),
		RedirectURL: l.cfg.Redirect, Scopes: append([]string{oidc.ScopeOpenID}, l.cfg.Scopes...),
	}, nil
}

// Begin returns the address at the issuer where somebody signs in, and what the attempt is known by. Its error is
// access.ErrIssuer; Finish also fails with access.ErrAttempt.
func (l *Login) Begin(ctx context.Context) (address string, a access.Attempt, err error) {
	_, flow, err := l.discover(ctx)
	if err != nil {
		return "", a, err
	}
	a = access.Attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	return flow.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), a, nil
}

// Finish exchanges the code with which the browser came back for tokens: the access token, and the ID token. Callers
// ask their authenticator which of the two it takes.
func (l *Login) Finish(ctx context.Context, a access.Attempt, state, code string) (tokens []string, err error) {
	if a.State == "" || code == "" || subtle.ConstantTimeCompare([]byte(a.State), []byte(state)) != 1 {
		return nil, access.ErrAttempt
	}
	provider, flow, err := l.discover(ctx)
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, l.cfg.Client)
	got, err := flow.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response.StatusCode < 500 {
		return nil, fmt.Errorf("%w: %w", access.ErrAttempt, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", access.ErrIssuer, err)
	}
	raw, _ := got.Extra("id_token").(string)
	id, err := provider.Verifier(&oidc.Config{ClientID: l.cfg.ClientID}).Verify(ctx, raw)
	if err != nil || subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(a.Nonce)) != 1 {
		return nil, access.ErrAttempt
	}
	return []string{got.AccessToken, raw}, nil
}
