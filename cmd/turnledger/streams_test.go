package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/services/client"
)

func TestStreamsOfAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t), "--partitions", "2")
	p.turn(t, "s", "r", "q", "a")
	code, out, errs := said(t, "streams", "plan", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	require.Regexp(t, `TURNS-0 +log +file +1 `, out)
	require.Contains(t, out, "KV_TURNLEDGER")
	for _, verb := range []string{"plan", "apply"} {
		code, out, errs = said(t, "streams", verb, "--partitions", "8", "--url", p.url)
		require.Equal(t, exitFailed, code, verb)
		require.Contains(t, out+errs, "made with 2 partitions, which is fixed for ever", verb)
		code, out, errs = said(t, "streams", verb, "--replicas", "3", "--url", p.url)
		require.Equal(t, exitFailed, code, verb)
		require.Contains(t, out+errs, "set TURNLEDGER_NATS_URL", verb)
	}
	code, out, errs = said(t, "streams", "plan", "--replicas", "3", "--json", "--url", p.url)
	require.Equal(t, exitFailed, code, errs)
	var plan struct {
		Partitions int
		Streams    []struct {
			Name    string
			Changes []struct{ What, Have, Want, Refused string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &plan))
	require.Equal(t, 2, plan.Partitions)
	require.Equal(t, "replicas", plan.Streams[0].Changes[0].What)
	require.NotEmpty(t, plan.Streams[0].Changes[0].Refused)
	code, _, errs = said(t, "streams", "plan", "--replicas", "9", "--url", p.url)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "from 1 to 5")
}

// From one replica to three while two processes are asked: every turn that was
// acknowledged is there, once and in order, and then a process starts that is told of three.
func TestReplicasOverTheCommandLine(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.ClientURL())
	}
	env := []string{"TURNLEDGER_NATS_URL=" + strings.Join(urls, ","), "TURNLEDGER_NATS_LISTEN="}
	a, b := start(t, env, "serve"), start(t, env, "serve")
	stop := make(chan struct{})
	wrote := make([]atomic.Int64, 4)
	var all sync.WaitGroup
	for w := range wrote {
		all.Go(func() {
			r, err := client.New(client.Config{URL: []*process{a, b}[w%2].url})
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			for {
				select {
				case <-stop:
					return
				default:
				}
				i, id := wrote[w].Load(), fmt.Sprint("load", w)
				turn, err := r.OnRequestStarted(t.Context(), client.Start{SessionID: id, RequestID: fmt.Sprint("r", i), QuestionNeutral: fmt.Sprint("question ", i)})
				if err == nil {
					err = r.OnRequestFinalized(t.Context(), client.Finalize{SessionID: id, TurnID: turn, AnswerNeutral: fmt.Sprint("answer ", i)})
				}
				if err != nil {
					t.Error(err)
					return
				}
				wrote[w].Add(1)
			}
		})
	}
	code, out, errs := said(t, "streams", "plan", "--replicas", "3", "--url", a.url)
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, "TURNS-0: replicas: 1, asked for: 3")
	require.Contains(t, errs, "turnledger streams apply")
	code, out, errs = said(t, "streams", "apply", "--replicas", "3", "--url", a.url)
	require.Equal(t, exitDone, code, errs)
	require.NotContains(t, out, "asked for")
	require.Regexp(t, `TURNS-0 +log +file +3 `, out)
	for w := range wrote {
		from := wrote[w].Load()
		require.Eventually(t, func() bool { return wrote[w].Load() > from+5 }, time.Minute, 5*time.Millisecond)
	}
	close(stop)
	all.Wait()
	third := start(t, append(env, "TURNLEDGER_REPLICAS=3"), "serve")
	for w := range wrote {
		for _, p := range []*process{a, b, third} {
			require.Equal(t, exchange(int(wrote[w].Load())), p.context(t, fmt.Sprint("load", w)))
		}
	}
	refused := launch(t, env, "serve")
	require.Eventually(t, func() bool { return strings.Contains(refused.log.String(), "set TURNLEDGER_REPLICAS=3") }, 30*time.Second, 20*time.Millisecond)
	a.must(t, http.StatusOK, http.MethodGet, "/readyz", nil)
}

// Under load some follower always lacks what is on its way: each is filled once it was seen
// with all, and plan does not call it filling.
func TestFollowersUnderLoadAreFilled(t *testing.T) {
	t.Parallel()
	stream := func(a, b client.StreamFollower) []client.Stream {
		a.Server, b.Server = "n2", "n3"
		return []client.Stream{{Name: "TURNS-0", Replicas: 3, Followers: []client.StreamFollower{a, b}}}
	}
	there, near, far := client.StreamFollower{Current: true}, client.StreamFollower{Behind: 2}, client.StreamFollower{Behind: 5000}
	seen := filled{}
	require.EqualValues(t, 2, seen.look([]client.Stream{{Name: "TURNS-0", Replicas: 3}}), "followers that are not there yet")
	require.EqualValues(t, 5001, seen.look(stream(client.StreamFollower{}, far)), "and one that nothing is known of")
	require.EqualValues(t, 2, seen.look(stream(there, near)))
	require.Zero(t, seen.look(stream(near, there)))
	for want, s := range map[string]client.Stream{
		"2":                   stream(there, near)[0],
		"5000, filling":       stream(there, far)[0],
		"0, filling":          {Replicas: 3},
		"2, n3 is offline":    stream(there, client.StreamFollower{Behind: 2, Offline: true})[0],
		"5000, n3 is offline": stream(there, client.StreamFollower{Behind: 5000, Offline: true})[0],
		"0":                   {Replicas: 1, Followers: stream(there, far)[0].Followers},
	} {
		require.Equal(t, want, behind(s))
	}
}
