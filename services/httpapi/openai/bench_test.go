package openai_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/items"
)

var prose = strings.Repeat("The quick brown fox jumps over the lazy dog. ", 8)

// quiet logs as a deployment does, and holds no answer against the document.
func quiet(b *testing.B) setting {
	b.Helper()
	b.Setenv(openaitest.Variable, "")
	return func(s *stack) { s.wire.Logger = slog.New(slog.DiscardHandler) }
}

// before returns the URL of a handler that does some work for each call, and then answers from memory.
func before(b *testing.B, answer string, work func(ctx context.Context) error) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the client sends all
		if err := work(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer) // the client reads all
	}))
	b.Cleanup(server.Close)
	return server.URL
}

// appends returns work that appends the first facts of a new turn of a new session to the log, and waits for the disk.
func (s *stack) appends(facts int) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		id := items.NewConversationID()
		turn := events.TurnID(id, "1")
		both := []events.Fact{
			&events.TurnStarted{TurnID: turn, SessionID: id, RequestID: "1", Question: events.Question{
				QuestionNeutral: prose}},
			&events.TurnFinalized{TurnID: turn, SessionID: id, Answer: events.Answer{AnswerNeutral: prose}},
		}
		ack, err := s.log.Append(ctx, jetlog.Append{Facts: both[:facts]})
		if err != nil {
			return err
		}
		return s.log.Durable(ctx, ack.Position)
	}
}

// BenchmarkCreateItems adds a question and its answer to conversations through OpenAI's client at 16 connections: each
// to one of its own, all to one, or all to one for ten calls before they go to the next. In alternation, the same
// client is answered the same bytes by handlers: from memory, after a bare append of one event that waits for the disk,
// and after one of two events, which is an atomic batch. Asked for: at least 0.6 of the handler's memory.
func BenchmarkCreateItems(b *testing.B) {
	const connections, calls, rounds = 16, 10, 4
	s := start(b, quiet(b))
	first := s.do("POST", "/v1/conversations/"+s.begin()+"/items", `{"items":[`+user(prose)+`,`+assistant(prose)+`]}`)
	require.Equal(b, http.StatusOK, first.status, first.raw)
	carrier := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	defer carrier.CloseIdleConnections()
	ways := map[string]sdk.Client{"calls/s": s.client(option.WithHTTPClient(carrier))}
	for unit, work := range map[string]func(context.Context) error{
		"memory-calls/s": func(context.Context) error { return nil },
		"event-calls/s":  s.appends(1), "batch-calls/s": s.appends(2),
	} {
		url := before(b, first.raw, work)
		ways[unit] = s.client(option.WithHTTPClient(carrier), option.WithBaseURL(url+"/v1"))
	}
	post := func(c sdk.Client, id string) error {
		both := newItems(said("user", prose), said("assistant", prose))
		added, err := c.Conversations.Items.New(b.Context(), id, both)
		if err == nil && len(added.Data) != 2 {
			err = fmt.Errorf("%d items", len(added.Data))
		}
		return err
	}
	for name, conversation := range map[string]func(connection, call int) int{
		"of one's own": func(connection, _ int) int { return connection },
		"one":          func(int, int) int { return 0 },
		"ten calls":    func(_, call int) int { return call / calls },
	} {
		b.Run(name, func(b *testing.B) {
			n := max(b.N/rounds, connections)
			took := map[string]time.Duration{}
			for range rounds {
				ids := make([]string, max(n/calls+1, connections))
				for i := range ids {
					ids[i] = s.begin()
				}
				for unit, c := range ways {
					took[unit] += spread(b, connections, n, func(k, i int) error {
						return post(c, ids[conversation(k, i)])
					})
				}
			}
			for unit, time := range took {
				b.ReportMetric(float64(n*rounds)/time.Seconds(), unit)
			}
			b.ReportMetric(took["memory-calls/s"].Seconds()/took["calls/s"].Seconds(), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// spread does pieces of work, numbered from 0, on so many connections at once, and returns the time that all took.
func spread(b *testing.B, connections, n int, work func(connection, i int) error) time.Duration {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for k := range connections {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := work(k, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// BenchmarkItemsPage lists 20 items of conversations of 20, 200 and 2,000 messages in alternation: the newest, the same
// right after two messages were added, the oldest, and those around the middle. Asked for: flat, a ratio of about 1. In
// turns, a question has one answer; in questions, nobody answers; a branch shares all but its last turn.
func BenchmarkItemsPage(b *testing.B) {
	sizes := []int{20, 200, 2000}
	for kind, line := range map[string]func(i int) string{
		"turns": func(i int) string {
			return []func(string) string{user, assistant}[i%2](fmt.Sprint(i, " ", prose))
		},
		"questions": func(i int) string { return user(fmt.Sprint(i, " ", prose)) },
		"branch": func(i int) string {
			return []func(string) string{user, assistant}[i%2](fmt.Sprint(i, " ", prose))
		},
	} {
		s := start(b, quiet(b))
		ids := map[int]string{}
		before, after := map[int]string{}, map[int]string{} // of the short one all but an item is on the page
		for _, size := range sizes {
			id := s.begin()
			for from := 0; from < size; from += 20 {
				var lines []string
				for i := from; i < from+20; i++ {
					lines = append(lines, line(i))
				}
				added := s.post(id, lines...)
				if from == size/40*20 {
					before[size] = added[19].(map[string]any)["id"].(string)
					after[size] = added[0].(map[string]any)["id"].(string)
				}
			}
			if kind == "branch" {
				id = s.do("POST", "/v1/sessions/"+id+"/fork", `{"request_id":"f"}`).body["session_id"].(string)
				s.post(id, line(0), line(1))
			}
			ids[size] = id
		}
		for page, path := range map[string]func(size int) string{
			"newest": func(int) string { return "?limit=20" },
			"grown":  func(int) string { return "?limit=20" },
			"oldest": func(int) string { return "?limit=20&order=asc" },
			"after":  func(size int) string { return "?limit=20&order=asc&after=" + after[size] },
			"before": func(size int) string { return "?limit=20&after=" + before[size] },
		} {
			b.Run(kind+"/"+page, func(b *testing.B) {
				took := map[int][]time.Duration{}
				for b.Loop() {
					for _, size := range sizes {
						if page == "grown" {
							s.post(ids[size], line(0), line(1))
						}
						began := time.Now()
						a := s.do("GET", "/v1/conversations/"+ids[size]+"/items"+path(size), "")
						took[size] = append(took[size], time.Since(began))
						require.Equal(b, http.StatusOK, a.status, a.raw)
					}
				}
				short := median(took[20])
				for _, size := range sizes {
					b.ReportMetric(median(took[size]), fmt.Sprint(size, "-p50-µs"))
				}
				b.ReportMetric(median(took[2000])/short, "ratio")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// median returns the median in microseconds.
func median(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Nanoseconds()) / 1000
}

// BenchmarkGetResponse reads the first response of a session of 200 responses and, in alternation, that of one of 2.
// Asked for: flat.
func BenchmarkGetResponse(b *testing.B) {
	s := start(b, quiet(b), answeredBy(answer.Echo{}))
	firsts := map[int]string{}
	for _, size := range []int{2, 200} {
		id := s.begin()
		for i := range size {
			made := s.must("POST", "/v1/responses", fmt.Sprintf(`{"input":%q,"conversation":%q}`, prose, id))
			if i == 0 {
				firsts[size] = made["id"].(string)
			}
		}
	}
	took := map[int][]time.Duration{}
	for b.Loop() {
		for size, id := range firsts {
			began := time.Now()
			s.must("GET", "/v1/responses/"+id, "")
			took[size] = append(took[size], time.Since(began))
		}
	}
	short, long := median(took[2]), median(took[200])
	b.ReportMetric(long, "200-p50-µs")
	b.ReportMetric(short, "2-p50-µs")
	b.ReportMetric(long/short, "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkFirstWord measures the time to the first word of a streamed response and, in alternation, of a streamed
// native chat, both in new sessions, with the model that echoes. Asked for: at p50 at most 1 ms later.
func BenchmarkFirstWord(b *testing.B) {
	s := start(b, quiet(b), answeredBy(answer.Echo{}), func(s *stack) {
		s.native.Chat = answer.New(answer.Config{
			Ports: services.Ports{Turns: s.services.History}, States: s.services.Reader, Questions: s.services.Reader,
			Contexts: s.services.Contexts, Model: answer.Echo{}, Presence: alone{},
		})
	})
	ways := map[string]struct{ path, body, event string }{
		"response": {"/v1/responses", fmt.Sprintf(`{"input":%q,"stream":true}`, prose), "response.output_text.delta"},
		"native":   {"/v1/chat/stream", fmt.Sprintf(`{"content":%q}`, prose), "delta"},
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, way := range ways {
			took[name] = append(took[name], s.firstEvent(b, way.path, way.body, way.event))
		}
	}
	ours, native := median(took["response"]), median(took["native"])
	b.ReportMetric(ours, "response-p50-µs")
	b.ReportMetric(native, "native-p50-µs")
	b.ReportMetric((ours-native)/1000, "later-ms")
	b.ReportMetric(0, "ns/op")
}

// firstEvent returns the time until the first event of a kind. It reads the stream to its end.
func (s *stack) firstEvent(b *testing.B, path, body, event string) (took time.Duration) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	require.NoError(b, err)
	began := time.Now()
	resp, err := http.DefaultClient.Do(r)
	require.NoError(b, err)
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if took == 0 && lines.Text() == "event: "+event {
			took = time.Since(began)
		}
	}
	require.NoError(b, lines.Err())
	require.NotZero(b, took, "%s has no event %s", path, event)
	return took
}
