package jwt

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

	"github.com/turnledger/turnledger/events/convoy"
	"github.com/turnledger/turnledger/services/access"
)

// keys are the public keys of an issuer. This package has a key set of its own because go-oidc's trusts a withdrawn key
// until a token with an unknown key comes, and asks the issuer for every such token.
type keys struct {
	cfg  Config
	byID atomic.Pointer[map[string][]crypto.PublicKey] // by key id; nil before the first answer
	// looked is when a token made us ask, in Unix ns, and failed why there was no answer.
	looked int64
	failed error
	asks   convoy.Barrier[struct{}]
}

var _ oidc.KeySet = (*keys)(nil)

func newKeys(cfg Config) *keys {
	k := &keys{cfg: cfg}
	k.asks.Ask = k.look
	return k
}

// asked carries an error past go-oidc, which keeps only an error's text. The error means that there is no key to check
// with.
type (
	asked    struct{ err error }
	askedKey struct{}
)

// VerifySignature returns a token's payload if one of the issuer's keys has signed it. go-oidc has checked form and
// algorithm before.
func (k *keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, signed(k.cfg.Algorithms))
	if err != nil || len(jws.Signatures) != 1 {
		return nil, errors.New("not one signature")
	}
	id := jws.Signatures[0].Header.KeyID
	candidates, known := k.withID(id)
	if !known {
		if _, err := k.asks.Wait(ctx); err != nil {
			if a, ok := ctx.Value(askedKey{}).(*asked); ok && k.byID.Load() == nil {
				a.err = access.ErrNoKeys
			}
			return nil, err
		}
		candidates, _ = k.withID(id)
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

// withID returns the keys with an id; for the empty id, all keys.
func (k *keys) withID(id string) (out []crypto.PublicKey, known bool) {
	held := k.byID.Load()
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

// look fetches the issuer's keys because of a token, but not again within the pause. Otherwise anybody could cause
// endless requests with made-up key ids. What was fetched within the pause counts.
func (k *keys) look(ctx context.Context) (_ struct{}, err error) {
	if last, now := k.looked, time.Now().UnixNano(); last == 0 || now-last >= int64(k.cfg.Pause) {
		k.looked = now
		k.failed = k.fetch(ctx)
	}
	return struct{}{}, k.failed
}

// fetch asks the issuer for the address of its keys, and then for the keys.
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
		// A key set may hold only public keys, no private or symmetric ones.
		if key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig") {
			held[key.KeyID] = append(held[key.KeyID], key.Key)
		}
	}
	if len(held) == 0 {
		return errors.New("the issuer tells no key that may sign")
	}
	k.byID.Store(&held)
	return nil
}

// mostKeys bounds an issuer's response, in bytes.
const mostKeys = 1 << 20

// get reads a set of keys. It skips keys of an unknown kind; jose.JSONWebKeySet would fail on them.
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
	var keySet struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, mostKeys)).Decode(&keySet); err != nil {
		return nil, errors.New("its answer is no set of keys")
	}
	for _, raw := range keySet.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil {
			set = append(set, key)
		}
	}
	return set, nil
}
