package apikeys

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
)

// ErrNoKey says that no key has the prefix.
var ErrNoKey = errors.New("no key has this prefix: turnledger keys list shows those that there are")

// content is the form of the file.
type content struct {
	Keys []Key `json:"keys"`
}

// File is a file of keys. Several processes may change it at once.
type File string

// Keys reads the file. It fails with fs.ErrNotExist if there is no file.
func (f File) Keys() ([]Key, error) {
	raw, err := f.read()
	if err != nil {
		return nil, err
	}
	return f.parse(raw)
}

// read refuses a file that other users may write, since they could add keys for themselves.
func (f File) read() ([]byte, error) {
	info, err := os.Stat(string(f))
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("others than its owner may write to %s: chmod 600 %s", f, f)
	}
	return os.ReadFile(string(f))
}

// parse reads the content of the file. Its errors don't repeat the content.
func (f File) parse(raw []byte) ([]Key, error) {
	var c content
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields() // an unknown field may be a condition, which must not be ignored
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("%s is no file of keys as turnledger keys create writes it", f)
	}
	for i, k := range c.Keys {
		if err := k.check(); err != nil {
			return nil, fmt.Errorf("%s: the key %s: %w", f, k.Prefix, err)
		}
		if slices.ContainsFunc(c.Keys[:i], func(o Key) bool { return o.Prefix == k.Prefix }) {
			return nil, fmt.Errorf("%s: two keys have the prefix %s", f, k.Prefix)
		}
	}
	return c.Keys, nil
}

// Add adds a key. It creates a missing file, readable only by its owner.
func (f File) Add(ctx context.Context, k Key) error {
	return f.change(ctx, func(keys []Key) ([]Key, error) { return append(keys, k), nil })
}

// Revoke ends a key for ever, and returns it as it is then. Revoking it again changes nothing. The key stays in the
// file, so that its name is still known.
func (f File) Revoke(ctx context.Context, prefix string, now time.Time) (revoked Key, err error) {
	err = f.changeKey(ctx, prefix, func(k *Key) ([]Key, error) {
		if k.RevokedAt.IsZero() {
			k.RevokedAt = now.UTC().Truncate(time.Second)
		}
		revoked = *k
		return nil, nil
	})
	return revoked, err
}

// Rotate adds a key with the same name, scopes and identity as an existing key, which then ends at a time, unless it
// ends earlier. The new key is valid for life; if life is 0, it is valid for as long as the old key was made for.
// Rotate returns both keys as they are then. A revoked or expired key is not replaced.
func (f File) Rotate(
	ctx context.Context, prefix string, until time.Time, life time.Duration, now time.Time,
) (old, next Key, text string, err error) {
	err = f.changeKey(ctx, prefix, func(k *Key) ([]Key, error) {
		if s := k.State(now); s != Active {
			return nil, fmt.Errorf("the key %s is %s: make another with turnledger keys create", prefix, s)
		}
		spec := Key{Name: k.Name, Scopes: k.Scopes, IdentityID: k.IdentityID}
		if life == 0 && !k.ExpiresAt.IsZero() {
			life = k.ExpiresAt.Sub(k.CreatedAt)
		}
		if life > 0 {
			spec.ExpiresAt = now.Add(life).UTC().Truncate(time.Second)
		}
		until = until.UTC().Truncate(time.Second)
		if k.ExpiresAt.IsZero() || until.Before(k.ExpiresAt) {
			k.ExpiresAt = until
		}
		var err error
		next, text, err = New(spec, now)
		old = *k
		return []Key{next}, err
	})
	return old, next, text, err
}

// changeKey changes the key with a prefix, and adds the keys that change returns.
func (f File) changeKey(ctx context.Context, prefix string, change func(*Key) (added []Key, err error)) error {
	return f.change(ctx, func(keys []Key) ([]Key, error) {
		i := slices.IndexFunc(keys, func(k Key) bool { return k.Prefix == prefix })
		if i < 0 {
			return nil, ErrNoKey
		}
		added, err := change(&keys[i])
		return append(keys, added...), err
	})
}

// lockPause is how long a change waits before it tries the lock again.
const lockPause = 20 * time.Millisecond

func (f File) change(ctx context.Context, change func([]Key) ([]Key, error)) error {
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o700); err != nil {
		return err
	}
	lock := flock.New(string(f)+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, lockPause); err != nil {
		return fmt.Errorf("lock %s: %w", f, err)
	}
	defer func() { _ = lock.Unlock() }()
	keys, err := f.Keys()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if keys, err = change(keys); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(content{keys}, "", "  ")
	if err != nil {
		return err
	}
	return f.replace(append(raw, '\n'))
}

// replace writes the file in one step, readable only by its owner.
func (f File) replace(raw []byte) error {
	t, err := renameio.NewPendingFile(string(f), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = t.Cleanup() }() // does nothing once the file was put in place
	if _, err := t.Write(raw); err != nil {
		return err
	}
	return t.CloseAtomicallyReplace()
}
