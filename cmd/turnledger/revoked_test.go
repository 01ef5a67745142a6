package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// revocation is how long a revoked key may count, as docs/operations.md has it; what is
// beyond a second is for a busy machine.
const revocation = 5 * time.Second

// with sends a request with a key.
func (p *process) with(t testing.TB, key, method, path, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, bytes.NewBufferString(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	return resp
}

func (p *process) statusWith(t testing.TB, key, method, path, body string) int {
	t.Helper()
	resp := p.with(t, key, method, path, body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// A key that is revoked ends at every process that shares the file, for requests and for
// streams that were begun before.
func TestARevokedKeyEndsAtEveryProcess(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	key, prefix := madeKey(t, file, "pipeline", "--scopes", "turns:write,context:read,events:read")
	stays, _ := madeKey(t, file, "other", "--scopes", "turns:write")
	nats := freeAddress(t)
	auth := "TURNLEDGER_AUTH=keys:" + file
	ps := []*process{
		start(t, []string{auth, "TURNLEDGER_NATS_LISTEN=" + nats, "TURNLEDGER_SYNC=always"}, "serve", "--data-dir", dataDir(t), "--roles", "api,context"),
		start(t, []string{auth, "TURNLEDGER_NATS_URL=nats://" + nats, "TURNLEDGER_NATS_LISTEN="}, "serve", "--roles", "api,context"),
	}
	ended := make(chan error, len(ps))
	for _, p := range ps {
		require.Equal(t, http.StatusOK, p.statusWith(t, key, http.MethodGet, session("s"), ""))
		stream := p.with(t, key, http.MethodGet, "/v1/events?follow=true", "")
		require.Equal(t, http.StatusOK, stream.StatusCode)
		t.Cleanup(func() { _ = stream.Body.Close() })
		go func() {
			_, err := io.Copy(io.Discard, stream.Body)
			ended <- err
		}()
	}
	code, _, errs := said(t, "keys", "revoke", prefix, "--auth", "keys:"+file)
	require.Equal(t, exitDone, code, errs)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, p := range ps {
			assert.Equal(c, http.StatusUnauthorized, p.statusWith(t, key, http.MethodGet, session("s"), ""))
		}
	}, revocation, 20*time.Millisecond)
	late := time.After(30 * time.Second)
	for n := 0; n < len(ps); {
		select {
		case err := <-ended:
			require.NoError(t, err)
			n++
		case <-time.After(100 * time.Millisecond):
			request := fmt.Sprintf(`{"request_id":"%d","question_neutral":"q"}`, time.Now().UnixNano())
			require.Equal(t, http.StatusCreated, ps[0].statusWith(t, stays, http.MethodPost, session("s")+"/turns", request))
		case <-late:
			require.FailNow(t, "the streams go on")
		}
	}
	for _, p := range ps {
		p.says(t, "a reader of events may not read any more")
	}
}
