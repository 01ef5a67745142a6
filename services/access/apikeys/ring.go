package apikeys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/reread"
)

// Ring holds the keys of a file, and follows the file's changes. Safe for concurrent use.
type Ring struct {
	// Files holds the keys by their prefixes. While the file can't be read, the keys that were read last stay valid.
	reread.Files[map[string]entry]

	now func() time.Time
}

var _ access.Authenticator = (*Ring)(nil)

// Config of a Ring.
type Config struct {
	// Every is the pause between two looks at the file; 1 s by default.
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
	logger := cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	r := &Ring{now: cfg.Now, Files: reread.Files[map[string]entry]{
		Paths: []string{string(file)}, Every: cfg.Every, Read: func(string) ([]byte, error) { return file.read() },
		Make: func(raw [][]byte) (map[string]entry, error) {
			keys, err := file.parse(raw[0])
			return entriesOf(keys), err
		},
		Changed: func(keys map[string]entry) { logger.Info("the file of keys was read again", "keys", len(keys)) },
		Failed: func(err error) {
			logger.Error("the file of keys can't be read; the keys that were read last go on to count", "err", err)
		},
	}}
	if r.now == nil {
		r.now = time.Now
	}
	err := r.Files.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist: make the first key with turnledger keys create NAME --scopes "+
			"turns:write,context:read --auth keys:%s", file, file)
	}
	return r, err
}

// entriesOf returns keys by their prefixes. Their scopes were checked when the file was read.
func entriesOf(keys []Key) map[string]entry {
	entries := make(map[string]entry, len(keys))
	for _, k := range keys {
		scopes, _ := access.ParseScopes(k.Scopes)
		entries[k.Prefix] = entry{k, access.Caller{
			Name: k.Prefix, Scopes: scopes, IdentityID: k.IdentityID, Until: k.ExpiresAt,
		}}
	}
	return entries
}

// Authenticate returns the caller that a key belongs to. The key's prefix, which is no secret, finds its entry; the
// whole key is compared in constant time.
func (r *Ring) Authenticate(_ context.Context, token string) (access.Caller, error) {
	prefix := token[:min(prefixLen, len(token))]
	if !r.Value()[prefix].Hash.equal(digestOf(token)) {
		return access.Caller{}, access.ErrUnauthenticated
	}
	return r.Named(prefix)
}

// Named returns the caller that the key with a prefix belongs to.
func (r *Ring) Named(prefix string) (access.Caller, error) {
	held, known := r.Value()[prefix]
	switch {
	case !known:
		return access.Caller{}, access.ErrUnauthenticated
	case held.State(r.now()) != Active:
		return access.Caller{}, access.ErrKeyEnded
	default:
		return held.caller, nil
	}
}
