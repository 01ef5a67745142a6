package tokens

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"

	"github.com/turnledger/turnledger/services/access"
)

// keys are the public keys of an issuer. go-oidc's own key set trusts a key that the issuer
// has withdrawn until a token with an unknown key comes, and asks the issuer each time that
// such a token comes.
type keys struct {
	cfg    Config
	held   atomic.Pointer[map[string][]crypto.PublicKey] // by key id; nil before the first answer
	looked atomic.Int64                                  // when a token made us ask, in Unix ns
	flight singleflight.Group
}

var _ oidc.KeySet = (*keys)(nil)

func newKeys(cfg Config) *keys { return &keys{cfg: cfg} }

// asked carries an error past go-oidc, which keeps only the text of errors: there is no key to check with.
type (
	asked    struct{ err error }
	askedKey struct{}
)

// VerifySignature returns a token's payload if one of the issuer's keys has signed it. Form
// and algorithm are checked by then.
func (k *keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, signed(k.cfg.Algorithms))
	if err != nil || len(jws.Signatures) != 1 {
		return nil, errors.New("not one signature")
	}
	id := jws.Signatures[0].Header.KeyID
	candidates, known := k.of(id)
	if !known {
		if err := k.look(ctx); err != nil {
			if a, ok := ctx.Value(askedKey{}).(*asked); ok && k.held.Load() == nil {
				a.err = access.ErrNoKeys
			}
			return nil, err
		}
		candidates, _ = k.of(id)
	}
	for _, key := range candidates {
		if payload, err := jws.Verify(key); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("no key of the issuer has signed it")
}

func signed(names []string) (out []jose.SignatureAlgorithm) {
	for _, a := range names {
		out = append(out, jose.SignatureAlgorithm(a))
	}
	return out
}

// of returns the keys that have an id; for the empty id, all keys.
func (k *keys) of(id string) (out []crypto.PublicKey, known bool) {
	held := k.held.Load()
	if held == nil {
		return nil, false
	}
	if id != "" {
		out, known = (*held)[id]
		return out, known
	}
	for _, some := range *held {
		out = append(out, some...)
	}
	return out, true
}

// look asks the issuer because of a token, but not again within the pause: else
// anybody who makes up key ids could have us ask all the time. Callers that wait share an answer.
func (k *keys) look(ctx context.Context) error {
	done := k.flight.DoChan("", func() (any, error) {
		last, now := k.looked.Load(), time.Now().UnixNano()
		if last != 0 && now-last < int64(k.cfg.Pause) {
			return nil, errors.New("the issuer was asked a moment ago")
		}
		k.looked.Store(now)
		return nil, k.fetch(context.WithoutCancel(ctx))
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fetch asks the issuer where its keys are, and for the keys.
func (k *keys) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, k.cfg.Client), k.cfg.URL)
	if err != nil {
		return fmt.Errorf("ask the issuer where its keys are: %w", err)
	}
	var where struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&where); err != nil {
		return fmt.Errorf("ask the issuer where its keys are: %w", err)
	}
	if err := trusted(where.Keys); err != nil {
		return fmt.Errorf("the address of the issuer's keys %w", err)
	}
	set, err := k.get(ctx, where.Keys)
	if err != nil {
		return fmt.Errorf("ask the issuer for its keys: %w", err)
	}
	held := map[string][]crypto.PublicKey{}
	for _, key := range set {
		// Private and symmetric keys are none that a set may show.
		if key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig") {
			held[key.KeyID] = append(held[key.KeyID], key.Key)
		}
	}
	if len(held) == 0 {
		return errors.New("the issuer tells no key that may sign")
	}
	k.held.Store(&held)
	return nil
}

// mostKeys bounds the answer of an issuer, in bytes.
const mostKeys = 1 << 20

// get reads a set of keys. One of a kind that this version does not know does not spoil
// the others, as it would for jose.JSONWebKeySet.
func (k *keys) get(ctx context.Context, address string) (set []jose.JSONWebKey, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := k.cfg.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers with status %d", resp.StatusCode)
	}
	var told struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, mostKeys)).Decode(&told); err != nil {
		return nil, errors.New("its answer is no set of keys")
	}
	for _, raw := range told.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil {
			set = append(set, key)
		}
	}
	return set, nil
}
