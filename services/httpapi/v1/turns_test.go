package v1_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/ratelimit"
	"github.com/turnledger/turnledger/services/read"
)

// many sends lines, and returns the answers to them.
func (s *stack) many(body string, header ...string) (rows []map[string]any) {
	s.t.Helper()
	a := s.do("POST", "/v1/turns", body, header...)
	require.Equal(s.t, http.StatusOK, a.status, "%s", a.raw)
	require.Equal(s.t, "application/x-ndjson", a.header.Get("Content-Type"))
	for line := range strings.Lines(string(a.raw)) {
		var row map[string]any
		require.NoError(s.t, json.Unmarshal([]byte(line), &row))
		rows = append(rows, row)
	}
	return rows
}

func manyLine(session, request string) string {
	return fmt.Sprintf(`{"session_id":%q,"request_id":%q,"question_neutral":"q","answer_neutral":"a"}`+"\n", session, request)
}

func TestABatchIsCountedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, body := range []string{strings.Repeat(manyLine("s", "r"), 1001), strings.Repeat("x", 8<<20+1)} {
		requireProblem(t, s.do("POST", "/v1/turns", body), http.StatusRequestEntityTooLarge, "body_too_large")
	}
	requireProblem(t, s.do("POST", "/v1/turns", "\n \n"), http.StatusBadRequest, "malformed")
	requireProblem(t, s.do("POST", "/v1/turns", manyLine("s", "r"), "If-None-Match", `"x"`),
		http.StatusUnprocessableEntity, "invalid_argument", "If-None-Match")
	require.Zero(t, s.head())
	rows := s.many(strings.Repeat(manyLine("s", "r"), 999) + manyLine("s", "last"))
	require.Len(t, rows, 1000)
	require.EqualValues(t, 201, rows[0]["http_status"])
	require.Equal(t, true, rows[998]["duplicate"])
	require.EqualValues(t, 1000, rows[999]["line"])
	require.EqualValues(t, 4, s.head())
}

func TestALineThatIsTooLargeIsItsOwn413(t *testing.T) {
	t.Parallel()
	s := start(t)
	huge := strings.Replace(manyLine("s", "r1"), `"a"`, `"`+strings.Repeat("a", 1<<20)+`"`, 1)
	rows := s.many(manyLine("s", "r0") + huge + manyLine("s", "r2"))
	require.EqualValues(t, 413, rows[1]["http_status"])
	require.Equal(t, "body_too_large", rows[1]["code"])
	require.EqualValues(t, 201, rows[2]["http_status"])
}

// After a line that comes too soon the later ones of its session are not tried.
func TestLinesCountInTheRateOfTheirSession(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) {
		c.Limiter = ratelimit.New(ratelimit.Rate{Requests: 2, Per: time.Hour}, ratelimit.Rate{},
			func() time.Time { return now })
	})
	body := ""
	for i := range 4 {
		body += manyLine("s", fmt.Sprint("r", i)) + manyLine(fmt.Sprint("t", i), "r")
	}
	for i, row := range s.many(body) {
		want := 201
		if i%2 == 0 && i >= 4 {
			want = 429
			require.Positive(t, row["retry_after"])
			require.Equal(t, "rate_limited", row["code"])
		}
		require.EqualValues(t, want, row["http_status"], "line %d", i+1)
	}
}

// What one line is refused for the moment, the later lines of its session are refused, too: a turn that would be let in
// by itself must not come before an earlier one.
func TestALineThatComesTooSoonHoldsUpItsSession(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) {
		c.Limiter = ratelimit.New(ratelimit.Rate{}, ratelimit.Rate{Requests: 1, Per: time.Hour}, nil)
	})
	ofAda := func(session, request string) string {
		return strings.Replace(manyLine(session, request), `{`, `{"identity_id":"ada",`, 1)
	}
	rows := s.many(ofAda("s", "r0") + ofAda("t", "r0") + manyLine("t", "r1") + manyLine("u", "r0"))
	for i, want := range []int{201, 429, 429, 201} {
		require.EqualValues(t, want, rows[i]["http_status"], "line %d", i+1)
	}
	require.Equal(t, rows[1]["retry_after"], rows[2]["retry_after"])
	require.Equal(t, rows[1]["code"], rows[2]["code"])
	require.EqualValues(t, 5, s.head(), "the session t has no events")
}

// A batch looks up the identity of each of its sessions once, however many lines it has of it: a bound key's for what
// it reaches, and any key's for the rate of identities.
func TestABatchReadsEachSessionOnce(t *testing.T) {
	t.Parallel()
	body := ""
	for i := range 40 {
		body += manyLine(fmt.Sprint("s", i%4), fmt.Sprint("r", i))
	}
	for _, caller := range []string{"all", "ada"} {
		lookups := &countedSessions{times: map[string]int{}}
		s, _ := guarded(t, ring{}, func(c *config, _ *history.Config, _ *read.Config) {
			lookups.SessionReader, c.LinkReader = c.LinkReader, lookups
			c.Limiter = ratelimit.New(ratelimit.Rate{}, ratelimit.Rate{Requests: 1000, Per: time.Hour}, nil)
		})
		want := map[string]int{}
		for i := range 4 {
			session := fmt.Sprint("s", i)
			want[session] = 1
			s.append(&events.SessionLinked{SessionID: session, IdentityID: "ada"})
		}
		for i, row := range s.many(body, "Authorization", "Bearer "+caller) {
			require.EqualValues(t, http.StatusCreated, row["http_status"], "line %d of %s", i+1, caller)
		}
		require.Equal(t, want, lookups.times, caller)
	}
}

// countedSessions counts the readings of each session.
type countedSessions struct {
	services.SessionReader
	sync.Mutex
	times map[string]int
}

// Read implements services.SessionReader.
func (c *countedSessions) Read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	c.Lock()
	defer c.Unlock()
	c.times[ask.SessionID]++
	return c.SessionReader.Read(ctx, ask)
}

// A bound key may not name another identity in a line either: the line is refused before anything of it is recorded.
// The metrics count lines by their statuses.
func TestALineOfABoundKeySpeaksForItself(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{})
	require.Equal(t, http.StatusCreated, s.as("all", "POST", "/v1/sessions/own/turns",
		`{"request_id":"r","question_neutral":"q","identity_id":"ada"}`).status)
	head := s.head()
	of := func(identity, request string) string {
		return strings.Replace(manyLine("own", request), `{`, fmt.Sprintf(`{"identity_id":%q,`, identity), 1)
	}
	a := s.as("ada", "POST", "/v1/turns", of("bob", "r1")+of("ada", "r2"))
	require.Equal(t, http.StatusOK, a.status)
	var rows []map[string]any
	for line := range strings.Lines(string(a.raw)) {
		var row map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		rows = append(rows, row)
	}
	require.EqualValues(t, http.StatusForbidden, rows[0]["http_status"])
	require.Equal(t, "forbidden", rows[0]["code"])
	require.EqualValues(t, http.StatusCreated, rows[1]["http_status"])
	require.EqualValues(t, head+2, s.head(), "a start and its answer, and no refused link")
	metrics := string(s.as("all", "GET", "/metrics", nil).raw)
	require.Contains(t, metrics, `turnledger_http_lines_total{status="201"} 1`)
	require.Contains(t, metrics, `turnledger_http_lines_total{status="403"} 1`)
}

func TestOnlyNewTurns(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.do("POST", "/v1/sessions/s/turns", `{"request_id":"r","question_neutral":"another"}`)
	before := s.head()
	row := s.many(manyLine("s", "r"), "If-None-Match", "*")[0]
	require.EqualValues(t, 200, row["http_status"])
	require.Equal(t, true, row["duplicate"])
	require.Equal(t, before, s.head())
	row = s.many(manyLine("s", "r"))[0]
	require.EqualValues(t, 200, row["http_status"])
	require.Equal(t, false, row["duplicate"], "the pending turn got the answer")
}

// Uploads that do not come leave the room for batches to others, however much their senders say that will come.
func TestSlowUploadsTakeNoRoom(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := strings.TrimPrefix(s.url, "http://")
	for range 9 {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /v1/turns HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n{", address, 8<<20)
		require.NoError(t, err)
	}
	a := s.do("POST", "/v1/turns", `{"session_id":"s","request_id":"r","question_neutral":"q"}`)
	require.Equal(t, http.StatusOK, a.status)
}

// Batches whose bytes fill the room leave none for the next, which hears that the server has too much in hand. A body
// that is too large takes room only up to its bound.
func TestBatchesFillTheirRoom(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := strings.TrimPrefix(s.url, "http://")
	line, piece := `{"session_id":"s","request_id":"r","question_neutral":"q"}`, strings.Repeat(" ", 1<<20)
	var open []net.Conn
	for s.do("POST", "/v1/turns", line).status == http.StatusOK {
		require.Less(t, len(open), 100)
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /v1/turns HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n", address)
		for range 10 { // two more than its bound; it breaks where there is no room
			if err == nil {
				_, err = fmt.Fprintf(conn, "%x\r\n%s\r\n", len(piece), piece)
			}
		}
		open = append(open, conn)
	}
	for range 20 {
		<-time.After(10 * time.Millisecond)
		requireProblem(t, s.do("POST", "/v1/turns", line), http.StatusServiceUnavailable, "overloaded")
	}
	for _, conn := range open {
		require.NoError(t, conn.Close())
	}
	hang.Until(t, func() bool {
		return s.do("POST", "/v1/turns", line).status == http.StatusOK
	})
}
