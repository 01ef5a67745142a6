package openai_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
)

// soon is far below the time for which a pending turn may hold others up.
const soon = 30 * time.Second

// within requires that a response is answered soon, and returns the time that it took.
func (s *stack) within(t *testing.T, body string) time.Duration {
	t.Helper()
	began, done := time.Now(), make(chan reply, 1)
	go func() { done <- s.do("POST", "/v1/responses", body) }()
	select {
	case a := <-done:
		require.Equal(t, http.StatusOK, a.status, a.raw)
	case <-time.After(soon):
		require.Fail(t, "the response waits for a turn that nobody answers", body[:min(len(body), 100)])
	}
	return time.Since(began)
}

// A question that is full goes on in the next turn. No model is asked about the first turn, so no response waits for
// it.
//
//conformance:o22
func TestAResponseDoesNotWaitForItsOwnInput(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	long := `[` + user(strings.Repeat("z", 100_000)) + `,` + user("And now?") + `]`
	many := `[` + strings.Repeat(user("m")+`,`, 70) + user("And now?") + `]`
	for _, input := range []string{long, many} {
		require.Less(t, s.within(t, `{"input":`+input+`}`), soon)
		require.Less(t, s.within(t, `{"input":`+input+`,"conversation":"`+s.begin()+`"}`), soon)
	}
}

//conformance:o22
func TestAResponseDoesNotWaitForItems(t *testing.T) {
	t.Parallel()
	for name, added := range map[string][]string{
		"long": {user(strings.Repeat("z", 100_000))},
		"many": strings.Split(strings.Repeat(user("m")+"\n", 69)+user("m"), "\n"),
		"more": {user("short"), user(strings.Repeat("z", 100_000))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, answeredBy(answer.Echo{}))
			id := s.begin()
			for _, one := range added[:len(added)-1] {
				s.post(id, one)
			}
			s.post(id, added[len(added)-1])
			s.within(t, `{"input":"And now?","conversation":"`+id+`"}`)
		})
	}
}

// A deletion moves no turn: the question that lost an item still stands before all that came later, and the response
// about it waits neither for itself nor for them.
func TestAResponseDoesNotWaitForAQuestionThatLostAnItem(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin(user("one"), user("two"), user("three"))
	s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(s.list(id, 10))[2], "")
	s.within(t, `{"input":"And now?","conversation":"`+id+`"}`)
	id = s.begin(user("one"), user("two"), function("c"))
	s.do("POST", "/v1/sessions/"+id+"/turns", `{"request_id":"r","question_neutral":"nobody answers it"}`)
	s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(s.list(id, 10))[0], "")
	s.within(t, `{"input":[{"type":"function_call_output","call_id":"c","output":"o"}],"conversation":"`+id+`"}`)
}

// Whoever answered a turn has died: another response waits for nobody.
//
//conformance:o22
func TestAResponseDoesNotWaitForAProcessThatDied(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "late", Hold: held} })
	died := start(t, answeredBy(m))
	id := died.begin()
	var all sync.WaitGroup
	defer all.Wait()
	defer close(held)
	all.Go(func() { died.do("POST", "/v1/responses", `{"input":"q","conversation":"`+id+`"}`) })
	<-model.Asked
	s := startOn(t, died.log, answeredBy(answer.Echo{}))
	s.within(t, `{"input":"another","conversation":"`+id+`"}`)
}

// An item may be old when a response asks about it. The next response waits for that one all the same.
//
//conformance:o22
func TestAResponseWaitsForOneThatAsksAboutAnOldItem(t *testing.T) {
	t.Parallel()
	const old = 3 * time.Second
	held := make(chan struct{})
	model, m := scripted(t, func(prompt []string) modeltest.Answer {
		a := modeltest.Answer{Text: "the answer"}
		if strings.HasSuffix(prompt[len(prompt)-1], "slowly") {
			a.Hold = held
		}
		return a
	})
	s := start(t, answeredAs(m, func(c *answer.Config) { c.Timeout = old }))
	id := s.begin(user("an item"))
	<-time.After(old + 100*time.Millisecond) // the item is then older than an answer may take
	var all sync.WaitGroup
	all.Go(func() { s.do("POST", "/v1/responses", `{"input":"slowly","conversation":"`+id+`"}`) })
	<-model.Asked
	all.Go(func() { s.do("POST", "/v1/responses", `{"input":"next","conversation":"`+id+`"}`) })
	hang.Until(t, func() bool { return len(s.list(id, 10)) == 3 })
	close(held)
	all.Wait()
	require.Equal(t, []string{"user: an item", "user: slowly", "assistant: the answer", "user: next"}, <-model.Asked)
}

// A response may wait for others for longer than an answer takes. It is queued all the time, and its conversation is
// locked for who asks for that.
//
//conformance:o22
func TestAResponseThatWaitsForLongIsQueued(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "late", Hold: held} })
	s := start(t, withClock(m, func() time.Time { return time.Now().Add(3 * time.Minute) }), func(s *stack) {
		s.document = openaitest.Read(t, "") // the other reads a stream to its end
	})
	id := s.begin()
	var all sync.WaitGroup
	var begun []string
	for _, input := range []string{"q0", "q1"} {
		body := `{"stream":true,"input":"` + input + `","conversation":"` + id + `"}`
		a, err := http.Post(s.url+"/v1/responses", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		lines := bufio.NewScanner(a.Body)
		for n := 0; n < 2 && lines.Scan(); n++ { // the name of the first event, and its data
		}
		begun = append(begun, eventsOf(t, lines.Text()+"\n")[0]["response"].(map[string]any)["id"].(string))
		all.Go(func() { _, _ = io.Copy(io.Discard, a.Body); _ = a.Body.Close() })
	}
	<-time.After(2 * time.Second) // until then somebody may be about to answer
	status := func(response string) any { return s.must("GET", "/v1/responses/"+response, "")["status"] }
	require.Equal(t, "in_progress", status(begun[0]))
	require.Equal(t, "queued", status(begun[1]))
	a := s.do("POST", "/v1/responses", `{"input":"q2","conversation":"`+id+`"}`, "X-Turnledger-On-Pending", "reject")
	require.Equal(t, "conversation_locked", a.body["error"].(map[string]any)["code"], a.raw)
	close(held)
	all.Wait()
	for _, response := range begun {
		require.Equal(t, "completed", status(response))
	}
}

// bounded is a model that notes how long it was given for its answer.
type bounded struct {
	answer.Echo

	given chan time.Duration
}

func (b bounded) Answer(
	ctx context.Context, p services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	end, _ := ctx.Deadline()
	b.given <- time.Until(end)
	return b.Echo.Answer(ctx, p, emit)
}

// A model that sends a byte now and then holds no response for ever, stored or not.
func TestAResponseHasADeadline(t *testing.T) {
	t.Parallel()
	given := make(chan time.Duration, 1)
	s := start(t, answeredBy(bounded{given: given}))
	for _, with := range []string{`"store":true`, `"store":false`, `"store":false,"stream":true`} {
		s.within(t, `{"input":"q",`+with+`}`)
		left := <-given
		require.Greater(t, left, time.Minute, with)
		require.LessOrEqual(t, left, 5*time.Minute, with)
	}
}

// The answer to a tool's output is under way for others as any answer is: another message waits for it, is refused, or
// interrupts it. An output that nobody is asked about holds up nobody.
//
//conformance:o22
func TestAnotherClientSeesAStepUnderWay(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"enqueue", "reject", "interrupt"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			held := make(chan struct{})
			model, m := scripted(t, func(prompt []string) modeltest.Answer {
				if last(prompt) == "tool: sunny" {
					return modeltest.Answer{Text: "It is", Hold: held}
				}
				return modeltest.Answer{Text: "ok"}
			})
			s := direct(start(t, answeredBy(m)))
			id := s.begin(user("weather?"), function("c"))
			s.post(id, user("and there?"), function("d"))
			s.post(id, result("d", "rain")) // no model is asked about it
			in := `,"conversation":"` + id + `"}`
			var all sync.WaitGroup
			s.askedTo("/v1/responses", `{"stream":true,"input":[`+result("c", "sunny")+`]`+in, "It ")
			<-model.Asked
			next := make(chan reply, 1)
			all.Go(func() {
				next <- s.do("POST", "/v1/responses", `{"input":"next"`+in, "X-Turnledger-On-Pending", policy)
			})
			switch policy {
			case "enqueue":
				hang.Until(t, func() bool { return len(s.list(id, 10)) == 7 })
				select {
				case <-model.Asked:
					require.Fail(t, "the model is asked beside the step")
				case <-time.After(time.Second):
				}
				close(held)
			case "reject":
				a := <-next
				require.Equal(t, "conversation_locked", a.body["error"].(map[string]any)["code"], a.raw)
				close(held)
			case "interrupt":
				require.Equal(t, http.StatusOK, (<-next).status)
				require.Contains(t, saidIn(s.list(id, 10)), "It ")
			}
			all.Wait()
		})
	}
}
