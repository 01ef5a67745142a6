package systemtest_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// revocation is how long a revoked key may still be accepted. docs/operations.md says one second; the rest is for a
// busy machine.
const revocation = 15 * time.Second

// revokedKeysEnd: a key that is revoked ends at every process that shares the file, for requests and for
// streams that were begun before.
func revokedKeysEnd(t *testing.T, file string, ps []*stack.Process) {
	t.Helper()
	key, prefix := createKey(t, file, "reader", "--scopes", "turns:write,context:read,events:read")
	stays, _ := createKey(t, file, "other", "--scopes", "turns:write")
	for _, p := range ps {
		hang.Until(t, func() bool {
			return requestStatus(t, p, key, http.MethodGet, stack.SessionPath("s"), "") == http.StatusOK
		})
	}
	ended := make(chan error, len(ps))
	for _, p := range ps {
		stream := request(t, p, key, http.MethodGet, "/v1/events?follow=true", "")
		require.Equal(t, http.StatusOK, stream.StatusCode)
		t.Cleanup(func() { _ = stream.Body.Close() })
		go func() {
			_, err := io.Copy(io.Discard, stream.Body)
			ended <- err
		}()
	}
	code, _, errs := stack.Run(t, "keys", "revoke", prefix, "--auth", "keys:"+file)
	require.Equal(t, stack.ExitDone, code, errs)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, p := range ps {
			assert.Equal(c, http.StatusUnauthorized,
				requestStatus(t, p, key, http.MethodGet, stack.SessionPath("s"), ""))
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
			require.Equal(t, http.StatusCreated,
				requestStatus(t, ps[0], stays, http.MethodPost, stack.SessionPath("s")+"/turns", request))
		case <-late:
			require.FailNow(t, "the streams go on")
		}
	}
	for _, p := range ps {
		p.WaitLog(t, "a reader of events may not read any more")
	}
}
