package v1_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/owners"
	"github.com/turnledger/turnledger/services"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/replay"
)

// connections that a benchmark keeps open.
const connections = 64

var prose = strings.Repeat("The quick brown fox jumps over the lazy dog. ", 8)

// quiet logs as a deployment does: no line for what went well.
func quiet(c *config) { c.Logger = slog.New(slog.NewTextHandler(&printed.Buffer{}, nil)) }

// spread runs n pieces of work over the connections and gives the rate per second.
func spread(b *testing.B, n int, work func(i int) error) float64 {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range connections {
		wg.Go(func() {
			for {
				i := int(next.Add(1))
				if i > n {
					return
				}
				if err := work(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(began).Seconds()
}

func keepAlive() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections}}
}

// post sends a body on a kept connection, as cheaply as net/http does it.
func post(client *http.Client, url string, body []byte, want int) error {
	resp, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return err
}

// BenchmarkHTTPRecordTurn records whole turns (start and finalize) over HTTP with 64
// connections, and publishes the same events one by one to a server that syncs each
// (SyncAlways), with as many writers, in alternation. Asked for: at least
// 1.5 times the turns of the latter.
func BenchmarkHTTPRecordTurn(b *testing.B) {
	s := start(b, quiet)
	client := keepAlive()
	defer client.CloseIdleConnections()
	floor := must.Get(jetlog.Open(b.Context(), natstest.Connect(b, natstest.ServerIn(b, b.TempDir(), embedded.Always)),
		jetlog.Config{}))(b)
	run := 0
	overHTTP := func(i int) error {
		session, request := fmt.Sprint("session-", run, "-", i/10), strconv.Itoa(i)
		base := s.url + "/v1/sessions/" + session + "/turns"
		question := []byte(`{"request_id":"` + request + `","pipeline_name":"bench","question_neutral":"` + prose + `"}`)
		if err := post(client, base, question, http.StatusCreated); err != nil {
			return err
		}
		answer := []byte(`{"answer_neutral":"` + prose + `"}`)
		return post(client, base+"/"+events.TurnID(session, request).String()+"/finalize", answer, http.StatusOK)
	}
	published := func(i int) error {
		return publish(b.Context(), floor, fmt.Sprint("session-", run, "-", i/10), strconv.Itoa(i))
	}
	compare(b, &run, "turns/s", overHTTP, published)
}

// publish appends a turn's two events, each by itself.
func publish(ctx context.Context, log *jetlog.Log, session, request string) error {
	id := events.TurnID(session, request)
	question := events.Question{QuestionNeutral: prose, PipelineName: "bench"}
	for _, f := range []events.Fact{
		&events.TurnStarted{TurnID: id, SessionID: session, RequestID: request, Question: question},
		&events.TurnFinalized{TurnID: id, SessionID: session, Answer: events.Answer{AnswerNeutral: prose}},
	} {
		if _, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}}); err != nil {
			return err
		}
	}
	return nil
}

// compare runs both sides in turn, so that whatever else the machine does hits both,
// and reports their rates and the ratio.
func compare(b *testing.B, run *int, unit string, ours, floor func(int) error) {
	b.Helper()
	const rounds = 4
	n := max(b.N/rounds, 1)
	var us, them float64
	b.ResetTimer()
	for range rounds {
		*run++
		us += float64(n) / spread(b, n, ours)
		them += float64(n) / spread(b, n, floor)
	}
	b.StopTimer()
	total := float64(n * rounds)
	b.ReportMetric(total/us, unit)
	b.ReportMetric(total/them, "floor-"+unit)
	b.ReportMetric(them/us, "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHTTPContext asks for the context of a session of 200 turns with 64
// connections, and a plain net/http handler for the same bytes. Asked for:
// at least 0.3 times the requests of the latter.
func BenchmarkHTTPContext(b *testing.B) {
	for _, messages := range []int{20, 200} {
		b.Run(fmt.Sprint("messages=", messages), func(b *testing.B) {
			log := natstest.Log(b, 1)
			s := startOn(b, log, quiet, withMemoryView(b, log))
			for i := range 200 {
				require.NoError(b, publish(b.Context(), log, "s", strconv.Itoa(i)))
			}
			body := []byte(`{"message":"And now?","max_messages":` + strconv.Itoa(messages) + `}`)
			path := "/v1/sessions/s/context"
			var a answer
			hang.Until(b, func() bool {
				a = s.do("POST", path, string(body))
				return a.body["source"] == "view"
			})
			require.Len(b, a.body["messages"], messages+1)
			plain := s.plain(b, a.raw)
			client := keepAlive()
			defer client.CloseIdleConnections()
			run := 0
			b.SetBytes(int64(len(a.raw)))
			compare(b, &run, "req/s",
				func(int) error { return post(client, s.url+path, body, http.StatusOK) },
				func(int) error { return post(client, plain+path, body, http.StatusOK) })
		})
	}
}

// BenchmarkHTTPContextOfABranch asks for contexts through three forks and, in alternation, for those of a flat session
// of as many turns; with one connection, and with 64. The window reaches back into the root. Asked for: at p99 at most
// twice the time of the flat session.
func BenchmarkHTTPContextOfABranch(b *testing.B) {
	for _, partitions := range []int{1, 4} {
		log := natstest.Log(b, partitions)
		s := startOn(b, log, quiet, withMemoryView(b, log))
		leaf := s.forkThrice(b)
		client := keepAlive()
		for _, clients := range []int{1, connections} {
			b.Run(fmt.Sprintf("partitions=%d/connections=%d", partitions, clients), func(b *testing.B) {
				took := map[string][]time.Duration{}
				const rounds = 20
				for range rounds {
					for _, session := range []string{"flat", leaf} {
						took[session] = append(took[session], timed(b, clients, max(b.N/rounds, 1), func() error {
							return post(client, s.url+"/v1/sessions/"+session+"/context",
								[]byte(`{"message":"And now?"}`), http.StatusOK)
						})...)
					}
				}
				of := func(session string, percent int) float64 {
					slices.Sort(took[session])
					return float64(took[session][len(took[session])*percent/100].Microseconds())
				}
				for _, percent := range []int{50, 99} {
					b.ReportMetric(of("flat", percent), fmt.Sprintf("flat-p%d-µs", percent))
					b.ReportMetric(of(leaf, percent), fmt.Sprintf("branch-p%d-µs", percent))
				}
				b.ReportMetric(of(leaf, 99)/of("flat", 99), "ratio-p99")
				b.ReportMetric(0, "ns/op")
			})
		}
		client.CloseIdleConnections()
	}
}

// forkThrice records 200 turns in a flat session, and as many in a session that is forked three times before its end.
// It returns the last branch once the view has all.
func (s *stack) forkThrice(b *testing.B) (leaf string) {
	b.Helper()
	leaf = "root"
	say := func(session string, i int) {
		a := s.do("POST", "/v1/sessions/"+session+"/turns", fmt.Sprintf(
			`{"request_id":"%d","question_neutral":%q,"answer_neutral":%q}`, i, prose, prose))
		require.Equal(b, http.StatusCreated, a.status)
	}
	for i := range 200 {
		if i >= 191 && (i-191)%3 == 0 {
			child := fmt.Sprint("branch-", i)
			a := s.do("POST", "/v1/sessions/"+leaf+"/fork", `{"request_id":"f","session_id":"`+child+`"}`)
			require.Equal(b, http.StatusCreated, a.status)
			leaf = child
		}
		say(leaf, i)
		say("flat", i)
	}
	for _, session := range []string{"flat", leaf} {
		hang.Until(b, func() bool {
			a := s.do("POST", "/v1/sessions/"+session+"/context", `{"message":"And now?"}`)
			return a.body["source"] == "view" && len(a.body["messages"].([]any)) == 21
		})
	}
	return leaf
}

// timed runs n pieces of work by a number of clients and returns how long each took.
func timed(b *testing.B, clients, n int, work func() error) (took []time.Duration) {
	b.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range (n + clients - 1) / clients {
				began := time.Now()
				err := work()
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return took
}

// plain serves the same bytes without any of what is measured.
func (s *stack) plain(b *testing.B, raw []byte) string {
	l := listen(b)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sessions/{session_id}/context", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(raw)
	})
	natstest.Run(b, func(ctx context.Context) error { return wire.Serve(ctx, l, mux, wire.ServerConfig{}) })
	return "http://" + l.Addr().String()
}

// BenchmarkHTTPRecordWholeTurn records turns with their answers over HTTP, by one call each and by batches of 500, and
// sets both against the publishes of BenchmarkHTTPRecordTurn.
func BenchmarkHTTPRecordWholeTurn(b *testing.B) {
	s := start(b, quiet)
	client := keepAlive()
	defer client.CloseIdleConnections()
	floor := must.Get(jetlog.Open(b.Context(), natstest.Connect(b, natstest.ServerIn(b, b.TempDir(), embedded.Always)),
		jetlog.Config{}))(b)
	run := 0
	whole := func(i int) string {
		return `"request_id":"` + strconv.Itoa(i) + `","pipeline_name":"bench","question_neutral":"` + prose +
			`","answer_neutral":"` + prose + `"}`
	}
	published := func(i int) error {
		return publish(b.Context(), floor, fmt.Sprint("session-", run, "-", i/10), strconv.Itoa(i))
	}
	b.Run("one call", func(b *testing.B) {
		compare(b, &run, "turns/s", func(i int) error {
			session := fmt.Sprint("session-", run, "-", i/10)
			return post(client, s.url+"/v1/sessions/"+session+"/turns", []byte("{"+whole(i)), http.StatusCreated)
		}, published)
	})
	b.Run("batches of 500", func(b *testing.B) {
		const batch = 500
		compare(b, &run, "batches/s", func(i int) error {
			var body bytes.Buffer
			for k := range batch {
				_, _ = fmt.Fprintf(&body, `{"session_id":"batch-%d-%d-%d",%s`+"\n", run, i, k/10, whole(k))
			}
			return post(client, s.url+"/v1/turns", body.Bytes(), http.StatusOK)
		}, func(i int) error {
			for k := range batch {
				if err := published(batch*i + k); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// BenchmarkEvents reads the whole log over HTTP, against a bare scan of it by an ordered
// consumer right before.
func BenchmarkEvents(b *testing.B) {
	const held = 100_000
	server := natstest.ServerIn(b, b.TempDir(), embedded.None)
	log := natstest.LogOn(b, server, 1)
	js := must.Get(jetstream.New(natstest.Connect(b, server), jetstream.WithPublishAsyncMaxPending(4000)))(b)
	for k := range held {
		session, request := fmt.Sprint("s", k%1000), fmt.Sprint(k)
		env := must.Get(events.Encode(&events.TurnStarted{
			TurnID: events.TurnID(session, request), SessionID: session, RequestID: request,
			Question: events.Question{QuestionNeutral: strings.Repeat("text of a turn. ", 12)},
		}, time.Now()))(b)
		_, err := js.PublishMsgAsync(&nats.Msg{Subject: env.Subject, Header: nats.Header(env.Header), Data: env.Body})
		require.NoError(b, err)
	}
	<-js.PublishAsyncComplete()
	r := replay.New(log, owners.New(log, nil))
	natstest.Run(b, r.Run)
	s := startOn(b, log, func(c *config) { c.Events = r })
	read := func(path string) {
		resp := must.Get(http.Get(s.url + path))(b)
		n := must.Get(io.Copy(io.Discard, resp.Body))(b)
		require.NoError(b, resp.Body.Close())
		require.Positive(b, n)
	}
	read("/v1/events?to=0:1")
	var floor, took time.Duration
	for b.Loop() {
		began := time.Now()
		c := must.Get(js.OrderedConsumer(b.Context(), events.StreamName(0), jetstream.OrderedConsumerConfig{}))(b)
		in := must.Get(c.Messages())(b)
		for range held {
			must.Get(in.Next())(b)
		}
		in.Stop()
		floor += time.Since(began)
		began = time.Now()
		read("/v1/events")
		took += time.Since(began)
	}
	b.ReportMetric(float64(held*b.N)/took.Seconds(), "events/s")
	b.ReportMetric(floor.Seconds()/took.Seconds(), "ratio")
}

// instant answers each write at once with the turn that the caller sent.
type instant struct{ services.TurnWriter }

func (instant) StartTurn(_ context.Context, c decide.Start) (services.Turn, error) {
	return services.Turn{SessionID: c.SessionID, Position: events.Position{Seq: 42}, Turn: session.Turn{
		ID: events.TurnID(c.SessionID, c.RequestID), RequestID: c.RequestID, Version: 1, CreatedAt: time.Unix(1, 0),
		Question: &c.Question,
	}}, nil
}

func (instant) FinalizeTurn(_ context.Context, c decide.Finalize) (services.Turn, error) {
	return services.Turn{SessionID: c.SessionID, Position: events.Position{Seq: 43}, Turn: session.Turn{
		ID: c.TurnID, RequestID: "r", Version: 1, CreatedAt: time.Unix(1, 0), FinalizedAt: time.Unix(2, 0),
		Question: &events.Question{QuestionNeutral: prose}, Answer: &c.Answer,
	}}, nil
}

// unread is a response that nobody reads.
type unread struct{ header http.Header }

func (u *unread) Header() http.Header         { return u.header }
func (u *unread) Write(b []byte) (int, error) { return len(b), nil }
func (u *unread) WriteHeader(int)             {}

// BenchmarkSurface measures what the surface itself costs: from a parsed request to the written answer of a start
// and of a finalize, whose ports answer at once. Sockets, net/http and the log are not in it.
func BenchmarkSurface(b *testing.B) {
	api := openAPI(v1.Config{Ports: services.Ports{Turns: instant{}}})
	id := events.TurnID("s", "r").String()
	question, answer := strings.Repeat("q", 120), strings.Repeat("a", 600)
	for name, call := range map[string]struct{ path, body string }{
		"start": {"/v1/sessions/s/turns",
			`{"request_id":"r","pipeline_name":"bench","question_neutral":"` + question + `"}`},
		"finalize": {"/v1/sessions/s/turns/" + id + "/finalize", `{"answer_neutral":"` + answer + `"}`},
	} {
		b.Run(name, func(b *testing.B) {
			check := httptest.NewRecorder()
			api.ServeHTTP(check, httptest.NewRequestWithContext(b.Context(), http.MethodPost, "http://localhost"+call.path,
				strings.NewReader(call.body)))
			require.Less(b, check.Code, 300, check.Body)
			body := bytes.NewReader(nil)
			r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "http://localhost"+call.path, body)
			r.ContentLength = int64(len(call.body))
			w := &unread{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				body.Reset([]byte(call.body))
				clear(w.header)
				api.ServeHTTP(w, r)
			}
		})
	}
}
