package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnledger/turnledger/projections/audit/localpg"
)

// turnledger is the product: `dev` alone, or `serve` beside a NATS server, a Redis and a PostgreSQL of its own.
type turnledger struct {
	binary  string
	outside bool
	env     []string // more settings

	command func() (*process, error)
	process *process
	nats    *bareNATS
	redis   *process
	pg      *localpg.Server
	stores  []int // processes of the outside stores
	url     string
	dir     string
	http    *http.Client
	request atomic.Int64
	linked  *sync.Map // the sessions that have an identity; nil: none gets one
}

func (t *turnledger) name() string {
	if t.outside {
		return "turnledger serve"
	}
	return "turnledger dev"
}

func (t *turnledger) start(ctx context.Context, dir string) error {
	addr, err := freePort()
	if err != nil {
		return err
	}
	natsAddr, err := freePort()
	if err != nil {
		return err
	}
	t.dir, t.url = dir, "http://"+addr
	t.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, MaxIdleConns: 256}}
	env := append(t.env, "TURNLEDGER_LISTEN="+addr, "TURNLEDGER_DATA_DIR="+filepath.Join(dir, "data"))
	verb := []string{"dev"}
	if t.outside {
		verb = []string{"serve"}
		more, err := t.outsideStores(ctx)
		if err != nil {
			return err
		}
		env = append(env, more...)
	} else {
		env = append(env, "TURNLEDGER_NATS_LISTEN="+natsAddr)
	}
	t.command = func() (*process, error) { return begin(dir, env, t.binary, verb...) }
	return t.begin(ctx)
}

// begin starts or restarts the process, and waits until it is ready.
func (t *turnledger) begin(ctx context.Context) (err error) {
	if t.process, err = t.command(); err != nil {
		return err
	}
	if err := ready(ctx, func() error { return t.get(ctx, "/readyz", nil) }); err != nil {
		return fmt.Errorf("%w; see %s", err, t.process.log)
	}
	return nil
}

// outsideStores starts the stores that `serve` needs, and returns the environment that names them.
func (t *turnledger) outsideStores(ctx context.Context) ([]string, error) {
	t.nats = &bareNATS{}
	url, err := t.nats.serve(ctx, t.dir)
	if err != nil {
		return nil, err
	}
	t.pg, err = localpg.Start(ctx, localpg.Config{
		DataDir: filepath.Join(t.dir, "pg"), Settings: []string{"shared_buffers=512MB"},
	})
	if err != nil {
		return nil, err
	}
	pg, err := postmaster(filepath.Join(t.dir, "pg", "cluster"))
	if err != nil {
		return nil, err
	}
	redis, err := freePort()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(redis)
	t.redis, err = begin(t.dir, nil, "redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", t.dir,
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "")
	if err != nil {
		return nil, err
	}
	t.stores = []int{t.nats.pid, pg, t.redis.cmd.Process.Pid}
	return []string{
		"TURNLEDGER_NATS_URL=" + url, "TURNLEDGER_POSTGRES_URL=" + t.pg.URL(), "TURNLEDGER_REDIS_URL=redis://" + redis,
	}, nil
}

func (t *turnledger) stop() error {
	err := t.process.stop()
	if t.outside {
		err = errors.Join(err, t.redis.stop(), t.pg.Stop(context.Background()), t.nats.stop())
	}
	return err
}

func (t *turnledger) processor() (d time.Duration) {
	for _, pid := range append(t.stores, t.process.cmd.Process.Pid) {
		d += processor(pid)
	}
	return d
}

// memory returns the bytes that the last garbage collection found in use (computed from the goal of the next one and
// GOGC), and the highest memory of the process.
func (t *turnledger) memory(ctx context.Context) (live, most int64) {
	metrics := t.metrics(ctx, "go_memstats_next_gc_bytes", "go_gc_gogc_percent")
	return int64(metrics[0] * 100 / (100 + metrics[1])), peak(t.process.cmd.Process.Pid)
}

// again restarts the process, so that its memory is that of a fresh start.
func (t *turnledger) again(ctx context.Context) error {
	if err := t.process.stop(); err != nil {
		return err
	}
	if err := t.begin(ctx); err != nil {
		return err
	}
	return t.settle(ctx)
}

func (t *turnledger) metrics(ctx context.Context, names ...string) []float64 {
	values := make([]float64, len(names))
	resp, err := t.send(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return values
	}
	for line := range strings.Lines(string(resp)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		for i, n := range names {
			if n == name {
				values[i], _ = strconv.ParseFloat(value, 64)
			}
		}
	}
	return values
}

type projections struct {
	Projections []struct {
		LagEvents  int64   `json:"lag_events"`
		LagSeconds float64 `json:"lag_seconds"`
	} `json:"projections"`
}

func (t *turnledger) lag(ctx context.Context) (most float64) {
	var views projections
	if t.get(ctx, "/v1/projections", &views) == nil {
		for _, p := range views.Projections {
			most = max(most, p.LagSeconds)
		}
	}
	return most
}

func (t *turnledger) settle(ctx context.Context) error {
	return ready(ctx, func() error {
		var views projections
		if err := t.get(ctx, "/v1/projections", &views); err != nil {
			return err
		}
		for _, p := range views.Projections {
			if p.LagEvents > 0 {
				return fmt.Errorf("a view is %d events behind", p.LagEvents)
			}
		}
		return nil
	})
}

func (t *turnledger) get(ctx context.Context, path string, out any) error {
	body, err := t.send(ctx, http.MethodGet, path, nil)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(body, out)
}

// send returns the body of a 2xx answer.
func (t *turnledger) send(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, t.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = &refusal{status: resp.StatusCode, body: string(answer)}
	}
	return answer, err
}

type refusal struct {
	status int
	body   string
}

func (r *refusal) Error() string { return fmt.Sprintf("answered %d: %s", r.status, r.body) }

type turn struct {
	Session  string `json:"session_id,omitempty"`
	Request  string `json:"request_id,omitempty"`
	Question string `json:"question_neutral,omitempty"`
	Answer   string `json:"answer_neutral,omitempty"`
}

func (t *turnledger) next() string { return strconv.FormatInt(t.request.Add(1), 10) }

func encoded(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

// inTwo records a turn with two calls, as pipelines do: the start, then the answer.
func (t *turnledger) inTwo(ctx context.Context, session string) error {
	if err := t.link(ctx, session); err != nil {
		return err
	}
	path := "/v1/sessions/" + session + "/turns"
	body, err := t.send(ctx, http.MethodPost, path, encoded(turn{Request: t.next(), Question: question()}))
	if err != nil {
		return err
	}
	var started struct {
		TurnID string `json:"turn_id"`
	}
	if err := json.Unmarshal(body, &started); err != nil {
		return err
	}
	_, err = t.send(ctx, http.MethodPost, path+"/"+started.TurnID+"/finalize", encoded(turn{Answer: answer()}))
	return err
}

// inOne records a turn with one call: the start carries the answer.
func (t *turnledger) inOne(ctx context.Context, session string) error {
	if err := t.link(ctx, session); err != nil {
		return err
	}
	whole := turn{Request: t.next(), Question: question(), Answer: answer()}
	_, err := t.send(ctx, http.MethodPost, "/v1/sessions/"+session+"/turns", encoded(whole))
	return err
}

// inBatch records 500 turns with one call.
func (t *turnledger) inBatch(ctx context.Context, session string) (int, error) {
	var body bytes.Buffer
	session += "-" + t.next() // each batch has sessions of its own
	for i := range batch {
		body.Write(encoded(turn{
			Session: session + "-" + strconv.Itoa(i/turnsOfSession), Request: t.next(), Question: question(),
			Answer: answer(),
		}))
		body.WriteByte('\n')
	}
	got, err := t.send(ctx, http.MethodPost, "/v1/turns", body.Bytes())
	if err == nil && bytes.Count(got, []byte(`"http_status":201`)) != batch {
		err = fmt.Errorf("not all of a batch were recorded: %.300s", got)
	}
	return batch, err
}

func (t *turnledger) read(ctx context.Context, session string) error {
	body, err := t.send(ctx, http.MethodPost, "/v1/sessions/"+session+"/context",
		encoded(map[string]any{"message": question(), "max_messages": readWindow}))
	if err == nil && !bytes.Contains(body, []byte(`"history_messages":`+strconv.Itoa(readWindow))) {
		err = fmt.Errorf("not %d messages: %.300s", readWindow, body)
	}
	return err
}

// client returns the client of a workload, and false if the server does not support it. Only newer servers take a whole
// turn in one call, and batches.
func (t *turnledger) client(ctx context.Context, w workload) (client, bool) {
	switch w {
	case twoCalls, long:
		return turnsOf(t.inTwo), true
	case oneCall:
		return turnsOf(t.inOne), known(t.inOne(ctx, "probe"))
	case batches:
		_, err := t.inBatch(ctx, "probe-batch")
		return doing(t.inBatch), known(err)
	case reads:
		return turnsOf(t.read), true
	}
	return nil, false
}

func known(err error) bool {
	var r *refusal
	return !errors.As(err, &r)
}

func (t *turnledger) fill(ctx context.Context, session string, turns int) error {
	for range turns {
		if err := t.inTwo(ctx, session); err != nil {
			return err
		}
	}
	return nil
}

func (t *turnledger) imported(ctx context.Context, n int) (time.Duration, error) {
	file := filepath.Join(t.dir, "import.jsonl")
	if err := conversations(file, n); err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(file) }()
	cmd := exec.CommandContext(ctx, t.binary, "import", file)
	cmd.Env = append(os.Environ(), "TURNLEDGER_URL="+t.url)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("import: %w: %s", err, out)
	}
	return time.Since(began), nil
}

func conversations(file string, n int) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	lines := json.NewEncoder(f)
	for i := range n {
		err := lines.Encode(map[string]any{
			"conversation_id": "import-" + strconv.Itoa(i),
			"messages":        []message{{"user", question()}, {"assistant", answer()}},
		})
		if err != nil {
			return err
		}
	}
	return nil
}
