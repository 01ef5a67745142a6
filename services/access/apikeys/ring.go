package apikeys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/reread"
)

// Ring is the keys of a file, as they are now. Safe for concurrent use.
type Ring struct {
	file   File
	cfg    Config
	holder atomic.Pointer[map[string]entry]
	raw    []byte // what was read last; for the goroutine that reads
}

var _ access.Authenticator = (*Ring)(nil)

// Config of a Ring.
type Config struct {
	// Every so often the file is looked at; 1 s by default.
	Every  time.Duration
	Now    func() time.Time
	Logger *slog.Logger
}

type entry struct {
	Key
	caller access.Caller
}

// Open reads a file of keys.
func Open(file File, cfg Config) (*Ring, error) {
	if cfg.Every == 0 {
		cfg.Every = time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Ring{file: file, cfg: cfg}
	_, err := r.reload()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist: make the first key with turnledger keys create NAME --scopes turns:write,context:read --auth keys:%s", file, file)
	}
	return r, err
}

// reload reads the file and tells whether it has changed.
func (r *Ring) reload() (bool, error) {
	raw, err := r.file.read()
	if err != nil {
		return false, err
	}
	if r.raw != nil && bytes.Equal(raw, r.raw) {
		return false, nil
	}
	keys, err := r.file.parse(raw)
	if err != nil {
		return false, err
	}
	held := make(map[string]entry, len(keys))
	for _, k := range keys {
		scopes, err := access.ParseScopes(k.Scopes)
		if err != nil {
			return false, err
		}
		held[k.Prefix] = entry{k, access.Caller{Name: k.Prefix, Scopes: scopes, IdentityID: k.IdentityID}}
	}
	r.raw = raw
	r.holder.Store(&held)
	return true, nil
}

// Run looks at the file until ctx ends, and then returns nil. While the file can't be
// read the keys that were read last go on to count.
func (r *Ring) Run(ctx context.Context) error {
	return reread.Run(ctx, r.cfg.Every, reread.What{
		Reload: r.reload,
		Failed: func(err error) {
			r.cfg.Logger.Error("the file of keys can't be read; the keys that were read last go on to count", "err", err)
		},
		Changed: func() { r.cfg.Logger.Info("the file of keys was read again", "keys", len(*r.holder.Load())) },
	})
}

// Authenticate tells whose key it is. A key's beginning, which is no secret, finds its
// entry; the whole is compared in constant time.
func (r *Ring) Authenticate(_ context.Context, token string) (access.Caller, error) {
	prefix := token[:min(prefixLen, len(token))]
	held, known := (*r.holder.Load())[prefix]
	switch same := held.Hash.equal(digestOf(token)); {
	case !same || !known:
		return access.Caller{}, access.ErrUnauthenticated
	case held.State(r.cfg.Now()) != Active:
		return access.Caller{}, access.ErrKeyEnded
	default:
		return held.caller, nil
	}
}
