package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnledger/turnledger/services/chat/modeltest"
)

// BenchmarkChatFirstWord streams answers through a server of its own with durable writes,
// and from the model's endpoint directly, in turns: how much later the first word comes.
// The model says 20 words, one every
// 10 ms, as models do; -benchtime 100x is a hundred rounds of each stream,
// which begins the next when the last is over. Issue 4: at p50 less than 3 ms,
// at p99 with 32 streams less than 10 ms.
func BenchmarkChatFirstWord(b *testing.B) {
	model := modeltest.New(b, func([]string) modeltest.Answer {
		return modeltest.Answer{Text: strings.Repeat("word ", 20), Every: 10 * time.Millisecond}
	})
	p := start(b, []string{"TURNLEDGER_MODEL_URL=" + model.URL + "/v1", "TURNLEDGER_MODEL_NAME=m"}, "serve", "--data-dir", dataDir(b), "--roles", "api,context,recent,chat")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	b.Cleanup(client.CloseIdleConnections)
	run := 0
	for _, streams := range []int{1, 32} {
		b.Run(fmt.Sprint("streams=", streams), func(b *testing.B) {
			run++
			var direct, ours times
			var all sync.WaitGroup
			for i := range streams {
				all.Go(func() {
					for round := range b.N {
						direct.add(b, client, model.URL+"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"and now?"}]}`)
						// Twenty messages a thread, so that most prompts have a history.
						ours.add(b, client, fmt.Sprint(p.url, "/v1/threads/t-", run, "-", i, "-", round/20, "/messages/stream"), `{"content":"and now?"}`)
						<-model.Asked
						<-model.Asked
					}
				})
			}
			all.Wait()
			for _, at := range []int{50, 99} {
				d, o := direct.percentile(at), ours.percentile(at)
				b.ReportMetric(d, fmt.Sprint("direct-p", at, "-ms"))
				b.ReportMetric(o-d, fmt.Sprint("added-p", at, "-ms"))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// times until the first word. Safe for concurrent use.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *times) add(b *testing.B, client *http.Client, url, body string) {
	took, err := firstWord(b.Context(), client, url, body)
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

// firstWord tells how long the first line with a word in it took, and reads to the end.
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
		if took == 0 && strings.Contains(lines.Text(), `{"content":"word `) {
			took = time.Since(began)
		}
	}
	if took == 0 && lines.Err() == nil {
		err = errors.New("the stream had no word")
	}
	return took, errors.Join(err, lines.Err())
}
