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

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/services"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/replay"
)

// withEvents is an API that reads events, with short heartbeats.
func withEvents(t testing.TB, partitions int, settings ...setting) *stack {
	t.Helper()
	log := natstest.Log(t, partitions)
	r := replay.New(log, owners.New(log, nil))
	natstest.Run(t, r.Run)
	with := func(c *config) { c.Events, c.Heartbeat, c.StreamPatience = r, 50*time.Millisecond, hang.Limit }
	return startOn(t, log, append([]setting{with}, settings...)...)
}

// stream is an answer that is read while it comes.
type stream struct {
	t testing.TB
	*http.Response
	lines *bufio.Reader
}

func (s *stack) stream(path string, header ...string) *stream {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), hang.Limit)
	s.t.Cleanup(cancel)
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil))(s.t)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp := must.Get(noRedirects.Do(req))(s.t)
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return &stream{s.t, resp, bufio.NewReader(resp.Body)}
}

// line returns the next line that is no heartbeat.
func (s *stream) line() string {
	s.t.Helper()
	for {
		l := must.Get(s.lines.ReadString('\n'))(s.t)
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
	require.Empty(t, must.Get(io.ReadAll(a.lines))(t))
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
	require.Equal(t, "\n", must.Get(nd.lines.ReadString('\n'))(t))
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
		must.Get(io.ReadAll(a.lines))(t)
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
	must.Fail(io.ReadAll(a.lines))(t, io.ErrUnexpectedEOF)
	require.Empty(t, a.Trailer.Get(v1.HeaderPosition))
}

// A client that reads nothing is given up, and holds up nobody meanwhile.
func TestSlowReaderHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := withEvents(t, 1, func(c *config) { c.StreamPatience = 5 * time.Second })
	text := strings.Repeat("x", 200_000)
	for k := range 60 {
		must.Get(s.log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{&events.TurnStarted{
			TurnID: events.TurnID("s", fmt.Sprint(k)), SessionID: "s", RequestID: fmt.Sprint(k),
			Question: events.Question{QuestionNeutral: text},
		}}}))(t)
	}
	slow := must.Get(net.Dial("tcp", strings.TrimPrefix(s.url, "http://")))(t)
	defer func() { _ = slow.Close() }()
	require.NoError(t, slow.(*net.TCPConn).SetReadBuffer(4096))
	must.Get(fmt.Fprintf(slow, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"))(t)
	fast := s.stream("/v1/events")
	require.Greater(t, must.Get(io.Copy(io.Discard, fast.lines))(t), int64(60*200_000))
	hang.Until(t, func() bool { return strings.Contains(s.logs.String(), "is given up") })
	require.NotContains(t, s.logs.String(), "xxx")
}

// talkative says more than the buffers on the way to a client hold, and closes the channel
// when it has said it all.
type talkative chan struct{}

func (c talkative) Send(_ context.Context, m services.ChatMessage, to services.Listener) (services.ChatReply,
	error) {
	to.Begun(services.Step{SessionID: m.ThreadID, TurnID: uuid.New()})
	for range 500 {
		to.Piece(said(strings.Repeat("word ", 20_000)))
	}
	close(c)
	return services.ChatReply{}, nil
}

// streamOf sends a message and gives the stream of its answer.
func streamOf(t *testing.T, url string) *http.Response {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/threads/t/messages/stream",
		strings.NewReader(`{"content":"c"}`)))(t)
	resp := must.Get(http.DefaultClient.Do(req))(t)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// TestAClientThatTakesNothingHoldsNoAnswerUp: a telephone that is out of reach does not
// close its connection, and its answer is recorded all the same.
func TestAClientThatTakesNothingHoldsNoAnswerUp(t *testing.T) {
	t.Parallel()
	said := make(talkative)
	s := bare(t, func(c *config) { c.Chat, c.StreamPatience = said, 100*time.Millisecond })
	streamOf(t, s.url)
	select {
	case <-said:
	case <-time.After(hang.Limit):
		require.Fail(t, "the answer waits for its client")
	}
}

// thoughtful answers after a time.
type thoughtful time.Duration

func (d thoughtful) Send(_ context.Context, m services.ChatMessage, to services.Listener) (services.ChatReply,
	error) {
	to.Begun(services.Step{SessionID: m.ThreadID, TurnID: uuid.New()})
	<-time.After(time.Duration(d))
	return services.ChatReply{ThreadID: m.ThreadID, Content: "a"}, nil
}

// TestALongAnswerIsSent: a chat may wait for others and then for its model, longer than
// other calls have to answer.
func TestALongAnswerIsSent(t *testing.T) {
	t.Parallel()
	s := bare(t, func(c *config) { c.Chat = thoughtful(500 * time.Millisecond) })
	s.url = "http://" + s.served(wire.ServerConfig{WriteTimeout: 100 * time.Millisecond})
	require.Equal(t, http.StatusOK, s.do("POST", "/v1/threads/t/messages", `{"content":"c"}`).status)
}

// bounded answers with the time that it was given; it was given none at first.
type bounded time.Duration

func (b *bounded) Send(ctx context.Context, m services.ChatMessage, to services.Listener) (services.ChatReply,
	error) {
	to.Begun(services.Step{SessionID: m.ThreadID, TurnID: uuid.New()})
	end, _ := ctx.Deadline()
	*b = bounded(time.Until(end))
	return services.ChatReply{ThreadID: m.ThreadID, Content: "a"}, nil
}

// A model that sends a byte now and then holds neither form of a message for ever.
func TestAnAnswerHasADeadline(t *testing.T) {
	t.Parallel()
	var given bounded
	s := bare(t, func(c *config) { c.Chat = &given })
	for _, path := range []string{"/v1/threads/t/messages", "/v1/threads/t/messages/stream"} {
		given = 0
		require.Equal(t, http.StatusOK, s.do("POST", path, `{"content":"c"}`).status)
		require.Greater(t, time.Duration(given), time.Minute, path)
		require.LessOrEqual(t, time.Duration(given), 5*time.Minute, path)
	}
}

// refusing is what the model's endpoint says to every message.
type refusing services.ModelRefusal

func (r *refusing) Send(context.Context, services.ChatMessage, services.Listener) (services.ChatReply, error) {
	return services.ChatReply{}, fmt.Errorf("%w: %w", services.ErrModelFailed, (*services.ModelRefusal)(r))
}

// A refusal of the model's endpoint is told by its status, and when the endpoint may be asked again.
func TestARefusalOfTheModelIsTold(t *testing.T) {
	t.Parallel()
	s := bare(t, func(c *config) { c.Chat = &refusing{Status: http.StatusTooManyRequests, After: 7 * time.Second} })
	a := s.do("POST", "/v1/threads/t/messages", `{"content":"c"}`)
	requireProblem(t, a, http.StatusBadGateway, "model_failed")
	require.Contains(t, a.body["detail"], "429")
	require.Equal(t, "7", a.header.Get("Retry-After"))
}

// waiting answers when it may.
type waiting chan struct{}

func (w waiting) Send(ctx context.Context, m services.ChatMessage, to services.Listener) (services.ChatReply,
	error) {
	to.Begun(services.Step{SessionID: m.ThreadID, TurnID: uuid.New()})
	select {
	case <-w:
		return services.ChatReply{ThreadID: m.ThreadID, Content: "a"}, nil
	case <-ctx.Done():
		return services.ChatReply{}, ctx.Err()
	}
}

// TestAStreamThatWaitsIsNoDeadConnection: a message waits for those before it, and proxies
// close connections on which nothing comes.
func TestAStreamThatWaitsIsNoDeadConnection(t *testing.T) {
	t.Parallel()
	answer := make(waiting)
	s := bare(t, func(c *config) { c.Chat, c.Heartbeat = answer, 20*time.Millisecond })
	resp := streamOf(t, s.url)
	var events []string
	beats := 0
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		if strings.HasPrefix(in.Text(), "event: ") {
			events = append(events, in.Text())
		}
		if in.Text() == ": heartbeat" {
			if beats++; beats == 3 {
				close(answer)
			}
		}
	}
	require.Equal(t, []string{"event: begun", "event: done"}, events)
}
