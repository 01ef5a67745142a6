package apikeys_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/access/apikeys"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

func file(t *testing.T) apikeys.File {
	return apikeys.File(filepath.Join(t.TempDir(), "below", "keys.json"))
}

// add makes a key in a file and gives its text.
func add(t *testing.T, f apikeys.File, k apikeys.Key) (apikeys.Key, string) {
	t.Helper()
	if k.Name == "" {
		k.Name = "pipeline"
	}
	if k.Scopes == nil {
		k.Scopes = []string{"turns:write"}
	}
	k, text, err := apikeys.New(k, time.Now())
	require.NoError(t, err)
	require.NoError(t, f.Add(t.Context(), k))
	return k, text
}

func open(t *testing.T, f apikeys.File, cfg apikeys.Config) *apikeys.Ring {
	t.Helper()
	return must.Get(apikeys.Open(f, cfg))(t)
}

func TestTheFileHoldsNoKey(t *testing.T) {
	t.Parallel()
	f := file(t)
	k, text := add(t, f, apikeys.Key{IdentityID: "ada"})
	must.Lack(t, string(must.Get(os.ReadFile(string(f)))(t)), text, strings.TrimPrefix(text, k.Prefix+"_"))
	require.True(t, strings.HasPrefix(text, k.Prefix+"_"))
	for _, name := range []string{string(f), string(f) + ".lock"} {
		info := must.Get(os.Stat(name))(t)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), name)
	}
	require.NoError(t, os.Chmod(string(f), 0o644))
	add(t, f, apikeys.Key{})
	info := must.Get(os.Stat(string(f)))(t)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), "closed again by the next change")
	keys := must.Get(f.Keys())(t)
	require.Len(t, keys, 2)
	require.Equal(t, k, keys[0])
}

func TestWhoseKeyItIs(t *testing.T) {
	t.Parallel()
	f := file(t)
	var now atomic.Pointer[time.Time]
	began := time.Now()
	now.Store(&began)
	k, text := add(t, f, apikeys.Key{Scopes: []string{"context:read", "turns:write"}, IdentityID: "ada"})
	_, short := add(t, f, apikeys.Key{ExpiresAt: began.Add(time.Hour)})
	r := open(t, f, apikeys.Config{Now: func() time.Time { return *now.Load() }})
	caller := must.Get(r.Authenticate(t.Context(), text))(t)
	require.Equal(t, access.Caller{Name: k.Prefix, Scopes: access.TurnsWrite | access.ContextRead, IdentityID: "ada"},
		caller)
	last := byte('A')
	if text[len(text)-1] == last {
		last = 'B'
	}
	for _, wrong := range []string{"", "x", k.Prefix, k.Prefix + "_", text[:len(text)-1], text + "A",
		text[:len(text)-1] + string(last), strings.ToLower(text), " " + text, short[:12] + text[12:], "tl_00000000_" +
			text[12:]} {
		caller, err := r.Authenticate(t.Context(), wrong)
		require.ErrorIs(t, err, access.ErrUnauthenticated, wrong)
		require.Zero(t, caller)
	}
	must.Get(r.Authenticate(t.Context(), short))(t)
	later := began.Add(time.Hour)
	now.Store(&later)
	must.Fail(r.Authenticate(t.Context(), short))(t, access.ErrKeyEnded)
	must.Get(r.Authenticate(t.Context(), text))(t, "without an expiry")
}

// A key is rotated by making another and revoking the first: in between both count.
// What happens to the file is seen without a new start, and a file that can't be read
// changes nothing.
func TestTheRingFollowsItsFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := file(t)
		var log bytes.Buffer
		old, oldText := add(t, f, apikeys.Key{})
		r := open(t, f, apikeys.Config{Every: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		counts := func(text string, want error) {
			t.Helper()
			<-time.After(1100 * time.Millisecond)
			synctest.Wait()
			must.Fail(r.Authenticate(t.Context(), text))(t, want)
		}
		_, newText := add(t, f, apikeys.Key{})
		counts(oldText, nil)
		counts(newText, nil)
		gone := must.Get(f.Revoke(t.Context(), old.Prefix, time.Now()))(t)
		require.Equal(t, apikeys.Revoked, gone.State(time.Now()))
		counts(oldText, access.ErrKeyEnded)
		counts(newText, nil)
		require.Equal(t, gone, must.Get(f.Revoke(t.Context(), old.Prefix, time.Now().Add(time.Hour)))(t))
		must.Fail(f.Revoke(t.Context(), "tl_unknown0", time.Now()))(t, apikeys.ErrNoKey)

		good := must.Get(os.ReadFile(string(f)))(t)
		for _, broken := range []string{"", "{", `{"keys":[{"prefix":"tl_aaaaaaaa"}]}`, strings.Replace(string(good),
			`"name"`, `"only_from":"10.0.0.0/8","name"`, 1), strings.Replace(string(good), "turns:write", "everything",
			1)} {
			require.NoError(t, os.WriteFile(string(f), []byte(broken), 0o600))
			counts(newText, nil)
			counts(oldText, access.ErrKeyEnded)
		}
		require.NoError(t, os.Remove(string(f)))
		counts(newText, nil)
		require.NoError(t, os.WriteFile(string(f), []byte(`{"keys":[]}`), 0o600))
		counts(newText, access.ErrUnauthenticated)
		require.NoError(t, os.WriteFile(string(f), good, 0o600))
		counts(newText, nil)
		stop()
		require.NoError(t, <-ended)
		require.Contains(t, log.String(), "can't be read")
		require.NotContains(t, log.String(), newText)
	})
}

// The next key counts at once, and the one before until the date that was given for it,
// or its own end.
func TestAKeyIsRotated(t *testing.T) {
	t.Parallel()
	f := file(t)
	var now atomic.Pointer[time.Time]
	began := time.Now()
	now.Store(&began)
	long, longText := add(t, f, apikeys.Key{Scopes: []string{"context:read"}, IdentityID: "ada"})
	short, shortText := add(t, f, apikeys.Key{ExpiresAt: began.Add(time.Minute)})
	old, next, nextText, err := f.Rotate(t.Context(), long.Prefix, began.Add(time.Hour), 2*time.Hour, began)
	require.NoError(t, err)
	require.Equal(t, began.Add(time.Hour).UTC().Truncate(time.Second), old.ExpiresAt)
	require.Equal(t, []any{long.Name, long.Scopes, long.IdentityID}, []any{next.Name, next.Scopes, next.IdentityID})
	require.Equal(t, began.Add(2*time.Hour).UTC().Truncate(time.Second), next.ExpiresAt)
	old, same, _, err := f.Rotate(t.Context(), short.Prefix, began.Add(time.Hour), 0, began)
	require.NoError(t, err)
	require.Equal(t, short.ExpiresAt.UTC(), old.ExpiresAt.UTC(), "no key lives longer for being rotated")
	require.WithinDuration(t, began.Add(time.Minute), same.ExpiresAt, 2*time.Second, "as long as the other")
	r := open(t, f, apikeys.Config{Now: func() time.Time { return *now.Load() }})
	is := func(at time.Duration, text string, want error) {
		t.Helper()
		then := began.Add(at)
		now.Store(&then)
		must.Fail(r.Authenticate(t.Context(), text))(t, want)
	}
	is(59*time.Minute, longText, nil)
	is(59*time.Minute, nextText, nil)
	is(59*time.Minute, shortText, access.ErrKeyEnded)
	is(time.Hour, longText, access.ErrKeyEnded)
	is(time.Hour, nextText, nil)
	is(2*time.Hour, nextText, access.ErrKeyEnded)

	must.Get(f.Revoke(t.Context(), next.Prefix, began))(t)
	before := must.Get(f.Keys())(t)
	_, _, _, err = f.Rotate(t.Context(), next.Prefix, began, 0, began)
	require.ErrorContains(t, err, "is revoked")
	_, _, _, err = f.Rotate(t.Context(), "tl_unknown0", began, 0, began)
	require.ErrorIs(t, err, apikeys.ErrNoKey)
	require.Equal(t, before, must.Get(f.Keys())(t))
}

func TestAFileThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	f := file(t)
	_, err := apikeys.Open(f, apikeys.Config{})
	require.ErrorContains(t, err, "turnledger keys create")
	_, text := add(t, f, apikeys.Key{})
	require.NoError(t, os.Chmod(string(f), 0o660))
	require.ErrorContains(t, must.Err(apikeys.Open(f, apikeys.Config{})), "chmod 600")
	require.Error(t, f.Add(t.Context(), apikeys.Key{}))
	// Somebody writes the key itself where its hash belongs.
	require.NoError(t, os.WriteFile(string(f), []byte(`{"keys":[{"prefix":"tl_aaaaaaaa","hash":"`+text+`"}]}`), 0o600))
	require.NoError(t, os.Chmod(string(f), 0o600))
	_, err = apikeys.Open(f, apikeys.Config{})
	require.Error(t, err)
	require.NotContains(t, err.Error(), text)
	// A condition that this version does not know.
	f = file(t)
	add(t, f, apikeys.Key{})
	raw := must.Get(os.ReadFile(string(f)))(t)
	require.NoError(t, os.WriteFile(string(f), bytes.Replace(raw, []byte(`"name"`),
		[]byte(`"only_from":"10.0.0.0/8","name"`), 1), 0o600))
	require.ErrorContains(t, must.Err(apikeys.Open(f, apikeys.Config{})), "is no file of keys")
}

func TestKeysThatWouldNotDoWhatIsExpected(t *testing.T) {
	t.Parallel()
	for says, k := range map[string]apikeys.Key{
		"has no scope":         {Name: "n"},
		"is no scope":          {Name: "n", Scopes: []string{"turns:read"}},
		"name":                 {Scopes: []string{"admin"}},
		"control characters":   {Name: "a\nb", Scopes: []string{"admin"}},
		"can't have the scope": {Name: "n", Scopes: []string{"turns:write", "admin"}, IdentityID: "ada"},
		"its identity":         {Name: "n", Scopes: []string{"turns:write"}, IdentityID: ".."},
	} {
		_, _, err := apikeys.New(k, time.Now())
		require.Error(t, err)
		require.ErrorContains(t, err, says)
	}
}

// Of two who change the file at once neither loses what it did.
func TestChangesAtOnce(t *testing.T) {
	t.Parallel()
	f := file(t)
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for range 20 {
		wg.Go(func() {
			k, _, err := apikeys.New(apikeys.Key{Name: "n", Scopes: []string{"admin"}}, time.Now())
			if err = errors.Join(err, f.Add(t.Context(), k)); err != nil {
				failed.Store(&err)
			}
		})
	}
	wg.Wait()
	require.Nil(t, failed.Load())
	require.Len(t, must.Get(f.Keys())(t), 20)
}
