package openai_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/answer/presence"
	"github.com/turnledger/turnledger/services/answer/relay"
)

// process is a stack that knows of others on the same log, until it is lost.
type process struct {
	*stack

	lose func()
}

// startBeside starts a process on a log that others share. key is what they share, or "".
func startBeside(t *testing.T, server *embedded.Server, model services.Model, key string) process {
	t.Helper()
	nc, log := natstest.Connect(t, server), natstest.LogOn(t, server, 1)
	notes, err := log.Notes(t.Context())
	require.NoError(t, err)
	s := startOn(t, log, answeredAs(model, func(c *answer.Config) {
		c.Presence = presence.New(nc, notes)
		if key != "" {
			c.Relay = relay.New(nc, key)
		}
	}))
	return process{direct(s), nc.Close}
}

const streamKey = "a key of 32 characters and a few more"

// Whoever watches a response in another process, from whatever event on, has exactly what its caller had, and may
// cancel it there.
func TestAResponseIsWatchedAndCancelledInAnotherProcess(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		held := make(chan struct{})
		_, m := scripted(t, func([]string) modeltest.Answer {
			return modeltest.Answer{Thoughts: "I think so", Text: "One two three, übermorgen vier.", Hold: held}
		})
		server := natstest.Server(t)
		a, b := startBeside(t, server, m, streamKey), startBeside(t, server, m, streamKey)
		first := a.opened("POST", "/v1/responses", `{"input":"q","stream":true}`)
		told := readTo(t, first, "reasoning_text.delta\n")
		path := "/v1/responses/" + idIn(told)
		live := b.opened("GET", path+"?stream=true", "")
		late := b.opened("GET", path+"?stream=true&starting_after=3", "")
		seen := readTo(t, live, "reasoning_text.delta\n")
		require.Equal(t, "in_progress", b.must("GET", path, "")["status"])
		if cancelled {
			require.Equal(t, "cancelled", b.must("POST", path+"/cancel", "")["status"])
		}
		close(held)
		told += rest(t, first)
		require.Equal(t, told, seen+rest(t, live))
		require.Equal(t, strings.Join(strings.SplitAfter(told, "\n\n")[4:], ""), rest(t, late))
		require.Equal(t, told, rest(t, b.opened("GET", path+"?stream=true", "")))
		require.Equal(t, cancelled, strings.Contains(told, `"status":"cancelled"`))
	}
}

// Where processes do not watch each other, a response that another one makes begins at once, and ends with the other.
func TestAResponseOfAnotherProcessBeginsAtOnce(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "One two.", Hold: held} })
	server := natstest.Server(t)
	a, b := startBeside(t, server, m, ""), startBeside(t, server, m, "")
	first := a.opened("POST", "/v1/responses", `{"input":"q","stream":true}`)
	told := readTo(t, first, "output_text.delta\n")
	live := b.opened("GET", "/v1/responses/"+idIn(told)+"?stream=true", "")
	seen := readTo(t, live, "event: response.in_progress\n")
	close(held)
	told += rest(t, first)
	require.Equal(t, told, seen+rest(t, live))
}

// When the process that makes a response dies, those who watch it are told at once that it has failed, whatever they
// have seen of it; it stays so, and a new attempt at its turn is a response of its own.
func TestAFailedResponseStaysFailed(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	defer close(held)
	endpoint, m := scripted(t, func([]string) modeltest.Answer {
		return modeltest.Answer{Text: "One two.", Hold: held}
	})
	server := natstest.Server(t)
	a, b := startBeside(t, server, m, streamKey), startBeside(t, server, m, streamKey)
	const body, retries = `{"input":"q","stream":true}`, "Idempotency-Key"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/v1/responses", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set(retries, "k")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	first := idIn(readTo(t, resp.Body, "output_text.delta\n"))
	live := b.opened("GET", "/v1/responses/"+first+"?stream=true", "")
	readTo(t, live, "output_text.delta\n")
	a.lose()
	lost := time.Now()
	ended := rest(t, live)
	require.Less(t, time.Since(lost), 5*time.Second)
	require.Contains(t, ended, "event: response.failed\n")
	require.Contains(t, ended, "server_error")
	failed := func() {
		t.Helper()
		out := b.must("GET", "/v1/responses/"+first, "")
		require.Equal(t, "failed", out["status"])
		require.Equal(t, "server_error", out["error"].(map[string]any)["code"])
		resumed := rest(t, b.opened("GET", "/v1/responses/"+first+"?stream=true&starting_after=9", ""))
		require.Contains(t, resumed, "event: response.failed\n")
	}
	failed()
	next := make(chan struct{})
	endpoint.Script(func([]string) modeltest.Answer { return modeltest.Answer{Text: "At last.", Hold: next} })
	again := b.must("POST", "/v1/responses", `{"input":"q","background":true}`, retries, "k")
	second := again["id"].(string)
	require.NotEqual(t, first, second)
	require.Equal(t, "in_progress", again["status"])
	failed()
	require.Equal(t, "in_progress", b.must("GET", "/v1/responses/"+second, "")["status"])
	same := b.must("POST", "/v1/responses", `{"input":"q","background":true}`, retries, "k")
	require.Equal(t, second, same["id"])
	require.Equal(t, "in_progress", same["status"])
	close(next)
	hang.Until(t, func() bool { return b.must("GET", "/v1/responses/"+second, "")["status"] == "completed" })
	failed()
	same = b.must("POST", "/v1/responses", `{"input":"q","background":true}`, retries, "k")
	require.Equal(t, second, same["id"])
	require.Equal(t, "completed", same["status"])
	require.Equal(t, []string{"At last."}, texts(same["output"].([]any)))
	b.must("POST", "/v1/responses", `{"input":"q2","previous_response_id":"`+second+`"}`)
}

// Responses that stream in the background count among those that may run.
func TestStreamsInTheBackgroundAreBounded(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	defer close(held)
	_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "One two.", Hold: held} })
	s := direct(start(t, answeredBy(m)))
	const body = `{"input":"q","background":true,"stream":true}`
	for range 32 {
		readTo(t, s.opened("POST", "/v1/responses", body), "output_text.delta\n")
	}
	require.Equal(t, http.StatusTooManyRequests, s.do("POST", "/v1/responses", body).status)
}
