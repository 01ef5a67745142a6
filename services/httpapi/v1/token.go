package v1

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/turnledger/turnledger/services/access"
)

// tokens adds the call that makes tokens for browsers.
func (a *surface) tokens() {
	issue := op("issue-token", access.TokensIssue, "POST /tokens",
		"Make a token with which a browser speaks for one identity", unread, gone).boundsItself()
	issue.DefaultStatus = http.StatusCreated
	call(a, a.issueToken, issue)
}

// mostLife is how long a token may last, in seconds.
const mostLife = 3600

type tokenIn struct {
	Body struct {
		IdentityID *id      `json:"identity_id" doc:"Whom the token is bound to: it reaches sessions of this identity alone"`
		ExpiresIn  *int     `json:"expires_in" doc:"Seconds, 1 to 3600"`
		Scopes     []string `json:"scopes" nullable:"false" doc:"Of turns:write, context:read and turns:redact, those that it has; none that the caller lacks"`
	}
}

type tokenJSON struct {
	Token     string    `json:"token" doc:"Shown once; sent as Authorization: Bearer TOKEN"`
	ExpiresAt time.Time `json:"expires_at"`
}

// issueToken makes a token. Who is bound makes it for their own identity: the reading of the body sees to that.
func (a *surface) issueToken(ctx context.Context, in *tokenIn) (tokenJSON, error) {
	ask, err := in.ask()
	if err != nil {
		return tokenJSON{}, err
	}
	t, err := a.cfg.Tokens.IssueToken(ctx, ask)
	return tokenJSON{t.Text, t.ExpiresAt}, err
}

func (in *tokenIn) ask() (access.TokenAsk, error) {
	var wrong fieldErrors
	refuse := func(when bool, field, why string) {
		if when {
			wrong = append(wrong, *invalid(field, why))
		}
	}
	b := &in.Body
	refuse(b.IdentityID == nil, "identity_id", "is required")
	refuse(b.ExpiresIn == nil || *b.ExpiresIn < 1 || *b.ExpiresIn > mostLife, "expires_in",
		"must be 1 to 3600, in seconds")
	scopes, err := access.ParseScopes(b.Scopes)
	refuse(err != nil || scopes == 0 || scopes&^access.TokenScopes != 0, "scopes",
		"must be one or more of "+strings.Join(access.TokenScopes.Names(), ", "))
	if wrong != nil {
		return access.TokenAsk{}, wrong.sorted()
	}
	return access.TokenAsk{
		IdentityID: b.IdentityID.text(), Scopes: scopes, Life: time.Duration(*b.ExpiresIn) * time.Second,
	}, nil
}
