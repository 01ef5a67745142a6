package v1_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/services/history"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/replay"
)

// withEvents is an API that reads events, with short heartbeats.
func withEvents(t testing.TB, partitions int) *stack {
	t.Helper()
	log := natstest.Log(t, partitions)
	r := replay.New(log, owners.New(log, nil))
	natstest.Run(t, r.Run)
	return startOn(t, log, func(c *config, _ *history.Config, _ *read.Config) {
		c.Events, c.Heartbeat, c.StreamPatience = r, 50*time.Millisecond, 5*time.Second
	})
}

// stream is an answer that is read while it comes.
type stream struct {
	t testing.TB
	*http.Response
	lines *bufio.Reader
}

func (s *stack) stream(path string, header ...string) *stream {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	s.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	require.NoError(s.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := noRedirects.Do(req)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return &stream{s.t, resp, bufio.NewReader(resp.Body)}
}

// line returns the next line that is no heartbeat.
func (s *stream) line() string {
	s.t.Helper()
	for {
		l, err := s.lines.ReadString('\n')
		require.NoError(s.t, err)
		if l = strings.TrimSuffix(l, "\n"); l != "" {
			return l
		}
	}
}

func idOf(t testing.TB, line string) string {
	t.Helper()
	var e struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(line), &e), line)
	return e.ID
}

func TestEventsAreNDJSONWithATrailerForTheEnd(t *testing.T) {
	t.Parallel()
	s := withEvents(t, 1)
	turn := s.record("s", "r", "q", "a")
	s.record("other", "r", "q", "")
	a := s.stream("/v1/events?session_id=s&type=" + events.TypeTurnStarted + "," + events.TypeTurnFinalized + "&type=" +
		events.TypeSessionLinked)
	require.Equal(t, "application/x-ndjson", a.Header.Get("Content-Type"))
	require.Equal(t, "0:0", a.Header.Get(v1.HeaderFrom))
	require.Equal(t, "0:3", a.Header.Get(v1.HeaderEnd))
	require.Equal(t, turn+".started", idOf(t, a.line()))
	require.Equal(t, turn+".finalized", idOf(t, a.line()))
	rest, err := io.ReadAll(a.lines)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, "0:3", a.Trailer.Get(v1.HeaderPosition))
}

// What a browser's EventSource does: it goes on after the last id, over several
// partitions.
func TestServerSentEventsGoOnAfterTheLastID(t *testing.T) {
	t.Parallel()
	s := withEvents(t, 2)
	var want []string
	for k := range 8 {
		want = append(want, s.record(fmt.Sprint("s", k), "r", "q", "")+".started")
	}
	var got []string
	last := ""
	for range 4 {
		header := []string{"Accept", "text/event-stream"}
		if last != "" {
			header = append(header, "Last-Event-ID", last)
		}
		a := s.stream("/v1/events?follow=true", header...)
		require.Equal(t, "text/event-stream", a.Header.Get("Content-Type"))
		for n := 0; n < 2; {
			switch name, value, _ := strings.Cut(a.line(), ": "); name {
			case "id":
				last = value
			case "data":
				got = append(got, idOf(t, value))
				n++
			}
		}
		_ = a.Body.Close()
	}
	require.Equal(t, want, got)
	whole := s.stream("/v1/events?from="+last, "Accept", "text/event-stream")
	require.Equal(t, "event: end", whole.line())
	require.Equal(t, "id: "+last, whole.line())
}

func TestFollowerIsGivenEventsAndHeartbeats(t *testing.T) {
	t.Parallel()
	s := withEvents(t, 1)
	nd, sse := s.stream("/v1/events?follow=true"), s.stream("/v1/events?follow=true&type="+events.TypeTurnFinalized,
		"Accept", "text/event-stream")
	beat, err := nd.lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "\n", beat)
	require.Equal(t, ": heartbeat", sse.line())
	turn := s.record("s", "r", "q", "")
	require.Equal(t, turn+".started", idOf(t, nd.line()))
	hang.Until(t, func() bool { return sse.line() == "id: 0:1" },
		"the id goes on over what is left out")
	s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns/"+turn+"/redact", map[string]any{})
	require.Equal(t, turn+".redacted", idOf(t, nd.line()))
	again := s.stream("/v1/events").line()
	require.Contains(t, again, `"redacted":true`)
	require.NotContains(t, again, "question_neutral")
}

func TestEventsThatCantBeReadAreProblems(t *testing.T) {
	t.Parallel()
	s := withEvents(t, 2)
	for query, field := range map[string]string{
		"session_id=..": "session_id", "session_id=s&identity_id=u": "identity_id", "type=nothing": "type",
		"type=":   "type",
		"from=42": "from", "from=0:1,0:2": "from",
		"to=5:1": "to", "since=yesterday": "since", "until=1": "until", "follow=maybe": "follow",
		"sesion_id=s": "sesion_id", "session_id=": "session_id", "identity_id=": "identity_id",
		"min_position=x": "min_position",
	} {
		a := s.do("GET", "/v1/events?"+query, nil)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, query)
		require.Equal(t, "invalid_argument", a.body["code"], query)
		require.Contains(t, a.body["detail"], field, query)
	}
	requireProblem(t, s.do("GET", "/v1/events?min_position=0:1", nil), http.StatusServiceUnavailable,
		"position_not_reached")
	for session := range strings.SplitSeq("abcdefgh", "") {
		s.record(session, "r", "q", "") // one of them is in partition 0
	}
	require.Equal(t, http.StatusOK, s.do("GET", "/v1/events?min_position=0:1", nil).status)
	require.Equal(t, http.StatusUnprocessableEntity, s.do("GET", "/v1/events", nil, "Last-Event-ID", "x").status)
	require.Equal(t, http.StatusOK, s.do("HEAD", "/v1/events?follow=true", nil).status)
}

// When the server stops, a follower's stream ends as a body does, and without the trailer,
// which is the mark of an end.
func TestAFollowersStreamEndsWithTheServer(t *testing.T) {
	t.Parallel()
	s := withEvents(t, 1)
	s.record("s", "r", "q", "")
	followers := []*stream{s.stream("/v1/events?follow=true"), s.stream("/v1/events?follow=true", "Accept",
		"text/event-stream")}
	for _, a := range followers {
		a.line()
	}
	s.api.EndStreams()
	for _, a := range followers {
		_, err := io.ReadAll(a.lines)
		require.NoError(t, err)
		require.Empty(t, a.Trailer.Get(v1.HeaderPosition))
	}
}

// Broken by the server in the middle: no trailer, and an error where the end would be.
func TestStreamThatIsBrokenOffIsNotTakenForTheEnd(t *testing.T) {
	t.Parallel()
	s := withEvents(t, 1)
	s.record("s", "r", "q", "")
	s.api.EndStreams()
	a := s.stream("/v1/events")
	_, err := io.ReadAll(a.lines)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Empty(t, a.Trailer.Get(v1.HeaderPosition))
}

// A client that reads nothing is given up, and holds up nobody meanwhile.
func TestSlowReaderHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := withEvents(t, 1)
	text := strings.Repeat("x", 200_000)
	for k := range 60 {
		_, err := s.log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.TurnStarted{
			TurnID: events.TurnID("s", fmt.Sprint(k)), SessionID: "s", RequestID: fmt.Sprint(k),
			Question: events.Question{QuestionNeutral: text},
		}}})
		require.NoError(t, err)
	}
	slow, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = slow.Close() }()
	require.NoError(t, slow.(*net.TCPConn).SetReadBuffer(4096))
	_, err = fmt.Fprintf(slow, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	fast := s.stream("/v1/events")
	n, err := io.Copy(io.Discard, fast.lines)
	require.NoError(t, err)
	require.Greater(t, n, int64(60*200_000))
	hang.Until(t, func() bool { return strings.Contains(s.logs.String(), "is given up") })
	require.NotContains(t, s.logs.String(), "xxx")
}
