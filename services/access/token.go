package access

import (
	"context"
	"errors"
	"strings"
	"time"
)

// TokenScopes are the most that a token of a TokenIssuer may do.
const TokenScopes = TurnsWrite | ContextRead | TurnsRedact

// tokenStart begins the text of a token, and names the version of its form. No key and no token of an OpenID Connect
// issuer begins so.
const tokenStart = "tlt1_"

// TokenBody returns the part of a token behind its beginning, and reports whether a text is one of a TokenIssuer.
func TokenBody(text string) (body string, is bool) { return strings.CutPrefix(text, tokenStart) }

// TokenText returns a token's text.
func TokenText(body string) string { return tokenStart + body }

// TokenAsk asks for a token that is bound to an identity and good for a time.
type TokenAsk struct {
	IdentityID string
	Scopes     Scopes
	Life       time.Duration
	// Path, if set, makes the token a ticket: it opens this one path, and its identity is that of its maker, if any.
	Path string
}

// Token is a token that was made. It is good until ExpiresAt, unless what it rests on ends before.
type Token struct {
	Text      string
	ExpiresAt time.Time
}

// TokenIssuer makes tokens for the caller of a context. Errors: *MissingScopes where the token would have a scope that
// the caller lacks, ErrNoTokenKey, ErrIdentityErased, and those of the log. The scopes are among TokenScopes.
type TokenIssuer interface {
	IssueToken(ctx context.Context, ask TokenAsk) (Token, error)
}

// Errors of a TokenIssuer.
var (
	ErrNoTokenKey = errors.New("no token can be made: set TURNLEDGER_TOKEN_KEY, the same in every process")
	// ErrIdentityErased: nobody speaks for the identity any more.
	ErrIdentityErased = errors.New("the identity was erased")
)
