//go:build linux

package systemtest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// recordLargeQuestion records a large question, or returns why it was not acknowledged.
func recordLargeQuestion(t testing.TB, p *stack.Process, request string) error {
	t.Helper()
	status, out, err := p.Call(t.Context(), http.MethodPost, stack.SessionPath("s")+"/turns",
		map[string]any{"request_id": request, "question_neutral": strings.Repeat("x", 900_000)})
	if err == nil && status >= http.StatusBadRequest {
		err = fmt.Errorf("%d %v", status, out["code"])
	}
	return err
}

// logReadiness returns the status of /readyz and its reason about the log.
func logReadiness(t testing.TB, p *stack.Process) (status int, reason string) {
	t.Helper()
	status, out, err := p.Call(t.Context(), http.MethodGet, "/readyz", nil)
	require.NoError(t, err)
	reason, _ = out["checks"].(map[string]any)["log"].(map[string]any)["reason"].(string)
	return status, reason
}

// writesStopAndResume writes until the disk is full and makes room. Everything that was acknowledged is there, and the
// same process takes writes again.
func writesStopAndResume(t *testing.T, p *stack.Process, full, room func()) {
	var acknowledged []string
	record := func() error {
		request := fmt.Sprint("r", len(acknowledged))
		err := recordLargeQuestion(t, p, request)
		if err == nil {
			acknowledged = append(acknowledged, request)
		}
		return err
	}
	// A busy machine may answer 503 to a large write, which is sent again.
	goesOn := func() {
		hang.Until(t, func() bool { return record() == nil },
			"no write goes through: %s", p.Log)
	}
	for range 3 {
		goesOn()
	}
	status, reason := logReadiness(t, p)
	require.Equal(t, http.StatusOK, status)
	full()
	for i := 0; !strings.Contains(reason, "make room, and writes go on by themselves") && i < 500; i++ {
		_ = record()
		status, reason = logReadiness(t, p)
	}
	require.Equal(t, http.StatusServiceUnavailable, status, "the disk is full, and it says that it is ready")
	// Each write is refused with the reason, and reads go on.
	for range 20 {
		_, out, err := p.Call(t.Context(), http.MethodPost, stack.SessionPath("s")+"/turns",
			map[string]any{"request_id": "refused", "question_neutral": "x"})
		require.NoError(t, err)
		require.Equal(t, "log_unavailable", out["code"], out)
		require.Contains(t, out["detail"], "takes no writes")
	}
	p.Get(t, stack.SessionPath("s")+"/history")
	p.WaitLog(t, "the log takes no writes")
	room()
	goesOn()
	hang.Until(t, func() bool { status, _ := logReadiness(t, p); return status == http.StatusOK })
	for range 3 {
		goesOn()
	}
	var found []string
	out := p.Get(t, stack.SessionPath("s")+"/turns?status=all&limit=10000")
	for _, x := range out["turns"].([]any) {
		found = append(found, x.(map[string]any)["request_id"].(string))
	}
	require.Equal(t, acknowledged, found)
}

func TestWritesGoOnWhenAFullDiskHasRoomAgain(t *testing.T) {
	t.Parallel()
	dir, _ := stack.MountSmallDisk(t, 160)
	p := stack.Start(t, nil, "serve", "--data-dir", dir, "--roles", "api,context,recent")
	var free func()
	writesStopAndResume(t, p, func() { free = stack.FillDisk(t, dir) }, func() { free() })
	batchOnAFullDisk(t, p, dir)
}

func TestWritesGoOnWhenADiskIsMadeLarger(t *testing.T) {
	t.Parallel()
	dir, resize := stack.MountSmallDisk(t, 40)
	p := stack.Start(t, nil, "serve", "--data-dir", dir, "--roles", "api,context,recent")
	writesStopAndResume(t, p, func() {}, func() { resize(160) })
	p.WaitLog(t, "more than the")
}

// batchOnAFullDisk: it answers each line with the truth: the lines that were recorded before, and 503 for the others.
// The same batch, when there is room again, records what lacks.
func batchOnAFullDisk(t *testing.T, p *stack.Process, dir string) {
	t.Helper()
	var body bytes.Buffer
	const lines, sessions = 400, 8
	for i := range lines {
		_, _ = fmt.Fprintf(&body, `{"session_id":"b%d","request_id":"r%d","question_neutral":"q","answer_neutral":%q}`+"\n",
			i%sessions, i, strings.Repeat("x", 15_000))
	}
	send := func() (codes map[int]int) {
		resp := must.Get(http.Post(p.URL+"/v1/turns", "application/x-ndjson", bytes.NewReader(body.Bytes())))(t)
		defer func() { _ = resp.Body.Close() }()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		codes = map[int]int{}
		rows := json.NewDecoder(resp.Body)
		for range lines {
			var row struct {
				Status     int    `json:"http_status"`
				Code       string `json:"code"`
				RetryAfter int    `json:"retry_after"`
			}
			require.NoError(t, rows.Decode(&row))
			if codes[row.Status]++; row.Status == http.StatusServiceUnavailable {
				require.Equal(t, "log_unavailable", row.Code)
				require.Positive(t, row.RetryAfter)
			}
		}
		return codes
	}
	free := stack.FillDisk(t, dir)
	var codes map[int]int
	hang.Until(t, func() bool {
		codes = send()
		return codes[http.StatusServiceUnavailable] > 0
	})
	t.Log("on a full disk: ", codes)
	free()
	hang.Until(t, func() bool {
		codes = send()
		return codes[http.StatusServiceUnavailable] == 0
	})
	require.Equal(t, map[int]int{http.StatusOK: lines}, send())
	for s := range sessions {
		out := p.Get(t, stack.SessionPath(fmt.Sprint("b", s))+"/turns?status=all&limit=10000")
		require.Len(t, out["turns"], lines/sessions)
		for i, x := range out["turns"].([]any) {
			turn := x.(map[string]any)
			require.Equal(t, "finalized", turn["status"])
			require.Equal(t, fmt.Sprint("r", i*sessions+s), turn["request_id"], "the order of the lines")
		}
	}
}
