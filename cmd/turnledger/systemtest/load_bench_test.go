package systemtest_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// BenchmarkCapacity measures what docs/operations.md tells of room: a server of its own is
// given sessions of five turns of 1 KB, and is killed (kill -9) and started again. Memory
// is that of the whole process, so that it holds the log's index and the view.
func BenchmarkCapacity(b *testing.B) {
	const sessions, turns = 20_000, 5
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 64
	stack.Binary(b) // is built before anything is timed
	for b.Loop() {
		dir := stack.DataDir(b)
		began := time.Now()
		p := stack.Start(b, nil, "serve", "--data-dir", dir, "--roles", "api,context")
		empty, before := time.Since(began), p.ResidentMemory(b)
		recordSessions(b, p, sessions, turns)
		held, disk := p.ResidentMemory(b)-before, sizeOf(b, filepath.Join(dir, "nats"))
		p.Kill(b)
		began = time.Now()
		p = stack.Start(b, nil, "serve", "--data-dir", dir, "--roles", "api,context")
		again := time.Since(began)
		fresh := p.ResidentMemory(b) - before
		require.EqualValues(b, turns, p.TurnCount(b, fmt.Sprint("s", sessions-1)))
		p.Kill(b)
		b.ReportMetric(float64(held)/sessions, "B/session")
		b.ReportMetric(float64(fresh)/sessions, "B/session-restarted")
		b.ReportMetric(float64(disk)/(sessions*turns), "disk-B/turn")
		b.ReportMetric((again-empty).Seconds()*float64(1<<30)/float64(disk), "s/GB-recovered")
		b.ReportMetric(empty.Seconds(), "s-empty-start")
		b.ReportMetric(0, "ns/op")
	}
}

// recordSessions records sessions of so many turns, 64 at once.
func recordSessions(b *testing.B, p *stack.Process, sessions, turns int) {
	b.Helper()
	question, answer := strings.Repeat("q", 200), strings.Repeat("a", 800)
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(64)
	for s := range sessions {
		g.Go(func() error {
			id := fmt.Sprint("s", s)
			for n := range turns {
				request := fmt.Sprint("r", n)
				turn := events.TurnID(id, request).String()
				for _, c := range []struct {
					path string
					body map[string]any
				}{
					{"/turns", map[string]any{"request_id": request, "question_neutral": question}},
					{"/turns/" + turn + "/finalize", map[string]any{"answer_neutral": answer}},
				} {
					if status, out, err := p.Call(ctx, http.MethodPost, stack.SessionPath(id)+c.path,
						c.body); err != nil || status >= http.StatusMultipleChoices {
						return fmt.Errorf("%d %v: %w", status, out["code"], err)
					}
				}
			}
			return nil
		})
	}
	require.NoError(b, g.Wait())
}

// sizeOf is what all files of a folder hold, in bytes.
func sizeOf(b *testing.B, dir string) (n int64) {
	b.Helper()
	require.NoError(b, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}

// BenchmarkChatFirstWord streams answers through a server of its own with durable writes,
// and from the model's endpoint directly, in turns: how much later the first word comes.
// The model says 20 words, one every 10 ms, as models do; -benchtime 100x is a hundred
// rounds of each stream, which begins the next when the last is over. Asked for: at p50 less
// than 3 ms, at p99 with 32 streams less than 10 ms. The same run measures a floor: the two events of a turn as bare
// publishes with SyncAlways, on the same disk, at the same pace, beside the same answers of the model. The first of the
// two publishes is what a first word has to wait for.
func BenchmarkChatFirstWord(b *testing.B) {
	model := modeltest.New(b, func([]string) modeltest.Answer {
		return modeltest.Answer{Text: strings.Repeat("word ", 20), Every: 10 * time.Millisecond}
	})
	p := stack.Serve(b, []string{"TURNLEDGER_MODEL_URL=" + model.URL + "/v1", "TURNLEDGER_MODEL_NAME=m"},
		"--roles", "api,context,recent,chat")
	bare, err := jetlog.Open(b.Context(), natstest.Connect(b, natstest.ServerIn(b, stack.DataDir(b), embedded.Always)),
		jetlog.Config{})
	require.NoError(b, err)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	b.Cleanup(client.CloseIdleConnections)
	run := 0
	for _, streams := range []int{1, 32} {
		b.Run(fmt.Sprint("streams=", streams), func(b *testing.B) {
			run++
			var direct, ours, floor times
			ask := func() { // the model itself
				took, err := firstWord(b.Context(), client, model.URL+"/v1/chat/completions",
					`{"model":"m","stream":true,"messages":[{"role":"user","content":"and now?"}]}`)
				direct.add(b, took, err)
				<-model.Asked
			}
			rounds(streams, b.N, func(i, round int) {
				ask()
				// Twenty messages a thread, so that most prompts have a history.
				took, err := firstWord(b.Context(), client,
					fmt.Sprint(p.URL, "/v1/threads/t-", run, "-", i, "-", round/20, "/messages/stream"),
					`{"content":"and now?"}`)
				ours.add(b, took, err)
				<-model.Asked
			})
			rounds(streams, b.N, func(i, round int) {
				ask()
				session, request := fmt.Sprint("t-", run, "-", i, "-", round/20), fmt.Sprint("r-", round)
				id := events.TurnID(session, request)
				began := time.Now()
				_, err := bare.Append(b.Context(),
					jetlog.Append{Facts: []events.Fact{&events.TurnStarted{TurnID: id, SessionID: session,
						RequestID: request, Question: events.Question{QuestionNeutral: "and now?"}}}})
				floor.add(b, time.Since(began), err)
				ask()
				must.Get(bare.Append(b.Context(),
					jetlog.Append{Facts: []events.Fact{&events.TurnFinalized{TurnID: id, SessionID: session,
						Answer: events.Answer{AnswerNeutral: strings.Repeat("word ", 20)}}}}))(b)
			})
			for _, at := range []int{50, 99} {
				d, added, f := direct.percentile(at), ours.percentile(at)-direct.percentile(at), floor.percentile(at)
				b.ReportMetric(d, fmt.Sprint("direct-p", at, "-ms"))
				b.ReportMetric(added, fmt.Sprint("added-p", at, "-ms"))
				b.ReportMetric(f, fmt.Sprint("floor-p", at, "-ms"))
				b.ReportMetric(added/f, fmt.Sprint("added/floor-p", at))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkResponseFirstWord streams answers of the native chat and responses of OpenAI's API in turns, from one
// server: how much later the first word of a response comes, where twenty make a conversation, and where each is the
// first of a session of its own. Asked for: at most 1 ms at p50.
func BenchmarkResponseFirstWord(b *testing.B) {
	model := modeltest.New(b, func([]string) modeltest.Answer {
		return modeltest.Answer{Text: strings.Repeat("word ", 5), Every: time.Millisecond}
	})
	p := stack.Serve(b, []string{"TURNLEDGER_MODEL_URL=" + model.URL + "/v1", "TURNLEDGER_MODEL_NAME=m"},
		"--roles", "api,context,recent,chat")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	b.Cleanup(client.CloseIdleConnections)
	for _, messages := range []int{20, 1} {
		b.Run(fmt.Sprint("messages=", messages), func(b *testing.B) {
			var native, response times
			conversation := ""
			for n := 0; b.Loop(); n++ {
				if messages > 1 && n%messages == 0 {
					id := p.Must(b, http.StatusOK, http.MethodPost, "/v1/conversations", map[string]any{})["id"]
					conversation = fmt.Sprintf(`,"conversation":"%v"`, id)
				}
				took, err := firstWord(b.Context(), client,
					fmt.Sprint(p.URL, "/v1/threads/of-", messages, "-", b.N, "-", n/messages, "/messages/stream"),
					`{"content":"and now?"}`)
				native.add(b, took, err)
				took, err = firstWord(b.Context(), client, p.URL+"/v1/responses",
					`{"stream":true,"input":"and now?"`+conversation+`}`)
				response.add(b, took, err)
				<-model.Asked
				<-model.Asked
			}
			for _, at := range []int{50, 99} {
				b.ReportMetric(native.percentile(at), fmt.Sprint("native-p", at, "-ms"))
				b.ReportMetric(response.percentile(at)-native.percentile(at), fmt.Sprint("added-p", at, "-ms"))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// rounds lets so many streams go through their rounds side by side.
func rounds(streams, n int, round func(stream, round int)) {
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			for k := range n {
				round(i, k)
			}
		})
	}
	all.Wait()
}

// times that something took. Safe for concurrent use.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *times) add(b *testing.B, took time.Duration, err error) {
	if err != nil {
		b.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, took)
}

// percentile in milliseconds.
func (l *times) percentile(p int) float64 {
	slices.Sort(l.all)
	return float64(l.all[(len(l.all)-1)*p/100].Microseconds()) / 1000
}

// firstWord returns how long the first line with a word in it took, and reads to the end.
func firstWord(ctx context.Context, client *http.Client, url, body string) (took time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if took == 0 && strings.Contains(lines.Text(), `"word `) {
			took = time.Since(began)
		}
	}
	if took == 0 && lines.Err() == nil {
		err = errors.New("the stream had no word")
	}
	return took, errors.Join(err, lines.Err())
}
