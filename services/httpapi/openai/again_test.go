package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
)

// A call that failed and is sent again without a word of a retry is the same turn; once it was answered, the same words
// are another message.
func TestACallThatFailedIsSentAgainWithoutAWord(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	model, m := scripted(t, func([]string) modeltest.Answer {
		if !works.Load() {
			return modeltest.Answer{Status: http.StatusInternalServerError}
		}
		return modeltest.Answer{Text: "answer"}
	})
	s := start(t, answeredBy(m))
	id := s.begin()
	body := `{"input":"q","conversation":"` + id + `"}`
	for range 3 {
		require.Equal(t, http.StatusBadGateway, s.do("POST", "/v1/responses", body).status)
	}
	works.Store(true)
	s.must("POST", "/v1/responses", body)
	for len(model.Asked) > 0 {
		require.Equal(t, []string{"user: q"}, <-model.Asked)
	}
	require.Equal(t, []string{"q", "answer"}, texts(s.list(id, 10)))
	s.must("POST", "/v1/responses", body)
	require.Equal(t, []string{"q", "answer", "q", "answer"}, texts(s.list(id, 10)))
}

// A call that won't wait for others does not wait for itself: what failed is asked again on the same turn. A call with
// another input is refused for as long as the failed one may be asked again.
func TestACallThatWontWaitIsSentAgain(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	model, m := scripted(t, func([]string) modeltest.Answer {
		if !works.Load() {
			return modeltest.Answer{Status: http.StatusInternalServerError}
		}
		return modeltest.Answer{Text: "answer"}
	})
	s := start(t, answeredBy(m))
	id := s.begin()
	ask := func(input string) reply {
		body := `{"input":"` + input + `","conversation":"` + id + `"}`
		return s.do("POST", "/v1/responses", body, "X-Turnledger-On-Pending", "reject")
	}
	for range 2 {
		require.Equal(t, http.StatusBadGateway, ask("q").status)
	}
	a := ask("other")
	require.Equal(t, "conversation_locked", a.body["error"].(map[string]any)["code"], a.raw)
	works.Store(true)
	require.Equal(t, http.StatusOK, ask("q").status)
	for len(model.Asked) > 0 {
		require.Equal(t, []string{"user: q"}, <-model.Asked)
	}
	require.Equal(t, []string{"q", "answer"}, texts(s.list(id, 10)))
}

// What describes a conversation, links it or branches off it is no turn: a call that failed before is sent again behind
// it, and is the same turn. What changes its turns is: the same words are a message of their own.
func TestACallIsSentAgainBehindWhatIsNoTurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		between func(s *stack, id, first string)
		want    []string
	}{
		"metadata": {func(s *stack, id, _ string) {
			s.must("POST", "/v1/conversations/"+id, `{"metadata":{"k":"v"}}`)
		}, []string{"first", "ok", "q", "ok"}},
		"a link": {func(s *stack, id, _ string) {
			s.must("PUT", "/v1/sessions/"+id+"/identity", `{"identity_id":"u"}`)
		}, []string{"first", "ok", "q", "ok"}},
		"a branch": {func(s *stack, _, first string) {
			s.must("POST", "/v1/responses", `{"input":"aside","previous_response_id":"`+first+`"}`)
		}, []string{"first", "ok", "q", "ok"}},
		"items": {func(s *stack, id, _ string) { s.post(id, user("u"), assistant("a")) },
			[]string{"first", "ok", "q", "u", "a", "q", "ok"}},
		"a redaction": {func(s *stack, id, _ string) {
			turns := s.turns(id)
			s.must("POST", "/v1/sessions/"+id+"/turns/"+turns[len(turns)-1]["turn_id"].(string)+"/redact", `{}`)
		}, []string{"first", "ok", "q", "ok"}},
		"a reset": {func(s *stack, id, _ string) {
			s.must("POST", "/v1/sessions/"+id+"/reset", `{}`)
		}, []string{"q", "ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var fails atomic.Bool
			_, m := scripted(t, func(prompt []string) modeltest.Answer {
				if fails.Load() && last(prompt) == "user: q" {
					return modeltest.Answer{Status: http.StatusInternalServerError}
				}
				return modeltest.Answer{Text: "ok"}
			})
			s := start(t, answeredBy(m))
			id := s.begin()
			in := `,"conversation":"` + id + `"}`
			first := s.must("POST", "/v1/responses", `{"input":"first"`+in)["id"].(string)
			fails.Store(true)
			require.Equal(t, http.StatusBadGateway, s.do("POST", "/v1/responses", `{"input":"q"`+in).status)
			c.between(s, id, first)
			fails.Store(false)
			s.must("POST", "/v1/responses", `{"input":"q"`+in)
			require.Equal(t, c.want, texts(s.list(id, 10)))
		})
	}
}

// A call that failed while an earlier one is being answered is asked again behind that answer: it neither runs beside
// it, whatever it waits for, nor takes it for its own.
func TestACallThatFailedBehindAnEarlierOne(t *testing.T) {
	t.Parallel()
	for name, answered := range map[string]bool{"that is being answered": false, "that was answered since": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := make(chan struct{})
			model, m := scripted(t, func(prompt []string) modeltest.Answer {
				if last(prompt) == "user: slow" {
					return modeltest.Answer{Text: "late", Hold: held}
				}
				return modeltest.Answer{Text: "ok"}
			})
			_, broken := scripted(t, func([]string) modeltest.Answer {
				return modeltest.Answer{Status: http.StatusInternalServerError}
			})
			s := start(t, answeredBy(m))
			failing := startOn(t, s.log, answeredBy(broken))
			id := s.begin()
			slow, q := `{"input":"slow","conversation":"`+id+`"}`, `{"input":"q","conversation":"`+id+`"}`
			var all sync.WaitGroup
			all.Go(func() { s.do("POST", "/v1/responses", slow) })
			<-model.Asked
			require.Equal(t, http.StatusBadGateway, failing.do("POST", "/v1/responses", q).status)
			end := sync.OnceFunc(func() { close(held); all.Wait() })
			if answered {
				end()
			}
			again := make(chan reply, 1)
			go func() { again <- s.do("POST", "/v1/responses", q, "X-Turnledger-On-Pending", "reject") }()
			<-time.After(time.Second) // in which it is asked, if it does not wait
			end()
			a := <-again
			require.Equal(t, http.StatusOK, a.status, a.raw)
			require.Equal(t, []string{"user: slow", "assistant: late", "user: q"}, <-model.Asked)
			require.Equal(t, []string{"slow", "late", "q", "ok"}, texts(s.list(id, 10)))
		})
	}
}

// together has the first looks at sessions wait for each other.
type together struct {
	answer.States

	looks *atomic.Int32
	many  int32
	first *sync.WaitGroup
}

func (w together) Session(ctx context.Context, id string, known uint64) (*session.State, error) {
	state, err := w.States.Session(ctx, id, known)
	if w.looks.Add(1) <= w.many {
		w.first.Done()
		w.first.Wait()
	}
	return state, err
}

// Of calls that come at once and won't wait, one is answered, though all of them find the conversation idle.
func TestOfCallsAtOnceThatWontWaitOneIsAnswered(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]string{
		"of different inputs": `[` + user("a%d") + `,` + user("b") + `]`, "of one input": `"q"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const many = 64
			held := make(chan struct{})
			model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "ok", Hold: held} })
			s := start(t, answeredAs(m, func(c *answer.Config) {
				first := &sync.WaitGroup{}
				first.Add(many)
				c.States = together{c.States, new(atomic.Int32), many, first}
			}))
			id := s.begin()
			var all sync.WaitGroup
			var locked, ok atomic.Int32
			for n := range many {
				input := one
				if strings.Contains(one, "%") {
					input = fmt.Sprintf(one, n)
				}
				all.Go(func() {
					body := `{"input":` + input + `,"conversation":"` + id + `"}`
					a := s.do("POST", "/v1/responses", body, "X-Turnledger-On-Pending", "reject")
					if e, is := a.body["error"].(map[string]any); is && e["code"] == "conversation_locked" {
						locked.Add(1)
					} else if a.status == http.StatusOK {
						ok.Add(1)
					}
				})
			}
			hang.Until(t, func() bool { return int(locked.Load())+len(model.Asked) >= many })
			close(held)
			all.Wait()
			require.Equal(t, []int32{1, many - 1}, []int32{ok.Load(), locked.Load()})
			require.Len(t, s.turns(id), 1)
		})
	}
}

// An output whose answer failed is sent again as a stream: it is the same step.
func TestAFailedStepIsSentAgainAsAStream(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	_, m := scripted(t, func([]string) modeltest.Answer {
		if !works.Load() {
			return modeltest.Answer{Status: http.StatusInternalServerError}
		}
		return modeltest.Answer{Text: "answer"}
	})
	s := start(t, answeredBy(m))
	id := s.begin(user("q"), function("c"))
	body := `{"input":[` + result("c", "x") + `],"conversation":"` + id + `"`
	require.Equal(t, http.StatusBadGateway, s.do("POST", "/v1/responses", body+`}`).status)
	works.Store(true)
	require.Contains(t, s.do("POST", "/v1/responses", body+`, "stream":true}`).raw, "response.completed")
	require.Equal(t, []string{"q", "call c", "call_output c", "answer"}, saidIn(s.list(id, 10)))
}

// noted tells of each call that has added its messages.
type noted struct {
	services.MessageWriter

	added chan services.AddedMessages
}

func (n noted) AddMessages(
	ctx context.Context, c decide.AddMessages, call services.Call,
) (services.AddedMessages, error) {
	done, err := n.MessageWriter.AddMessages(ctx, c, call)
	n.added <- done
	return done, err
}

// leaving tells of each call whose caller has gone.
type leaving struct {
	services.Responder

	gone chan struct{}
}

func (l leaving) Respond(
	ctx context.Context, a services.StepAsk, to services.Listener,
) (services.Answered, error) {
	defer context.AfterFunc(ctx, func() { l.gone <- struct{}{} })()
	return l.Responder.Respond(ctx, a, to)
}

// Whoever asked has hung up in mid-answer, and sends the same body again: it is given the answer that is under way.
func TestACallWhoseCallerHasGoneIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, streamed := range []string{"", `,"stream":true`} {
		held := make(chan struct{})
		model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "ok", Hold: held} })
		added, gone := make(chan services.AddedMessages, 10), make(chan struct{}, 10)
		s := start(t, answeredAs(m, func(r *answer.Config) {
			r.Messages = noted{r.Messages, added}
		}), func(s *stack) { s.cfg.Responses = leaving{s.cfg.Responses, gone} })
		id := s.begin()
		body := `{"input":"q","conversation":"` + id + `"` + streamed + `}`
		ctx, hangUp := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/responses", strings.NewReader(body))
		require.NoError(t, err)
		var all sync.WaitGroup
		all.Go(func() {
			if a, err := http.DefaultClient.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, a.Body)
				_ = a.Body.Close()
			}
		})
		<-model.Asked
		<-added
		hangUp()
		<-gone
		all.Go(func() { require.Equal(t, http.StatusOK, s.do("POST", "/v1/responses", body).status) })
		<-added
		close(held)
		all.Wait()
		require.Equal(t, []string{"q", "ok"}, texts(s.list(id, 10)))
	}
}

// Whoever asked has hung up, and sends the same body again when the answer stands in the log: it is given that answer,
// and the same words after that are a message of their own.
func TestACallWhoseCallerHasGoneIsSentAgainLater(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "ok", Hold: held} })
	gone := make(chan struct{}, 10)
	s := start(t, answeredBy(m), func(s *stack) { s.cfg.Responses = leaving{s.cfg.Responses, gone} })
	id := s.begin()
	body := `{"input":"q","conversation":"` + id + `"}`
	ctx, hangUp := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/responses", strings.NewReader(body))
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		if a, err := http.DefaultClient.Do(r); err == nil {
			_ = a.Body.Close()
		}
	})
	<-model.Asked
	hangUp()
	<-gone
	all.Wait()
	close(held)
	hang.Until(t, func() bool { return len(s.list(id, 10)) == 2 })
	for _, want := range [][]string{{"q", "ok"}, {"q", "ok", "q", "ok"}} {
		s.must("POST", "/v1/responses", body)
		require.Equal(t, want, texts(s.list(id, 10)))
	}
}

// The server is killed in mid-answer, and the same body comes again at once: in a conversation, behind a response that
// goes on, and behind one that branches.
func TestACallThatComesAgainRightAfterAKill(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	model, m := scripted(t, func(prompt []string) modeltest.Answer {
		if last(prompt) == "user: q" {
			return modeltest.Answer{Text: "late", Hold: held}
		}
		return modeltest.Answer{Text: "ok"}
	})
	killed := start(t, answeredBy(m))
	id := killed.begin()
	own := killed.must("POST", "/v1/responses", `{"input":"own"}`)["id"].(string)
	behind := killed.must("POST", "/v1/responses", `{"input":"root","conversation":"`+id+`"}`)["id"].(string)
	<-model.Asked
	<-model.Asked
	var all sync.WaitGroup
	defer all.Wait()
	defer close(held)
	for after, want := range map[string][]string{
		`"previous_response_id":"` + own + `"`:    {"own", "ok", "q"},
		`"previous_response_id":"` + behind + `"`: {"root", "ok", "q"},
		`"conversation":"` + id + `"`:             {"root", "ok", "q"},
	} {
		body := `{"input":"q",` + after + `}`
		all.Go(func() { killed.do("POST", "/v1/responses", body) })
		<-model.Asked
		s := startOn(t, killed.log, answeredBy(answer.Echo{}))
		branches := len(s.branches(id))
		r := s.must("POST", "/v1/responses", body)
		require.Equal(t, want, saidIn(s.given(r["id"])), after)
		require.Len(t, s.branches(id), branches, after)
	}
	require.Equal(t, []string{"root", "ok", "q"}, texts(killed.list(id, 10))[:3])
	require.Len(t, killed.list(id, 10), 4)
}

// The same words while the first are being answered are a message of their own.
func TestTheSameWordsWhileTheFirstAreAnswered(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "ok", Hold: held} })
	s := start(t, answeredBy(m))
	id := s.begin()
	var all sync.WaitGroup
	ask := func() { s.do("POST", "/v1/responses", `{"input":"yes","conversation":"`+id+`"}`) }
	all.Go(ask)
	<-model.Asked
	all.Go(ask)
	hang.Until(t, func() bool { return len(s.list(id, 10)) == 2 })
	close(held)
	all.Wait()
	require.Equal(t, []string{"yes", "ok", "yes", "ok"}, texts(s.list(id, 10)))
}

// What follows an output belongs to the output's turn until somebody asks, in items as in responses.
func TestWhatFollowsALateOutputStandsAtItsQuestion(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin(user("book it"), function("c1"))
	s.post(id, user("other question"), assistant("other answer"))
	s.post(id, result("c1", "done"), assistant("It is booked."))
	turns := s.turns(id)
	require.Len(t, turns, 2)
	for n, want := range [][]any{{"book it", "It is booked."}, {"other question", "other answer"}} {
		require.Equal(t, want, []any{turns[n]["question_neutral"], turns[n]["answer_neutral"]})
	}
}

// A conversation's own items that come with their ids are not added to it again; what was deleted does not come back.
func TestItemsOfAConversationThatComeWithTheirIDs(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "a2"} })
	s := start(t, answeredBy(m))
	id := s.begin(user("q1"), assistant("a1"))
	history := agentsHistory(s, id)
	s.respondTo(append(history, user("q2")), `,"conversation":"`+id+`"`)
	require.Equal(t, []string{"user: q1", "assistant: a1", "user: q2"}, <-model.Asked)
	require.Equal(t, []string{"q1", "a1", "q2", "a2"}, texts(s.list(id, 10)))
	all := agentsHistory(s, id)
	s.must("POST", "/v1/sessions/"+id+"/turns/"+s.turns(id)[0]["turn_id"].(string)+"/redact", `{}`)
	for range 3 {
		s.respondTo(append(all, user("q3")), `,"conversation":"`+id+`"`)
		require.NotContains(t, <-model.Asked, "user: q1")
	}
	require.NotContains(t, texts(s.list(id, 20)), "q1")
	require.NotContains(t, texts(s.list(id, 20)), "a1")
}

// A whole history that comes ten times after a redaction brings nothing back; a history that was edited goes on in one
// branch.
func TestAHistoryThatComesTenTimes(t *testing.T) {
	t.Parallel()
	_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "yes"} })
	s := start(t, answeredBy(m))
	id := s.begin()
	s.post(id, user("a"), assistant("b"))
	s.post(id, user("LEAKME"), assistant("LEAKME too"))
	s.post(id, user("c"), assistant("d"))
	history := agentsHistory(s, id)
	s.must("POST", "/v1/sessions/"+id+"/turns/"+s.turns(id)[1]["turn_id"].(string)+"/redact", `{}`)
	edited := append(history[:4:4], user("edited"), assistant("e"))
	for _, sent := range [][]string{history, edited} {
		before := len(s.branches(id))
		for range 10 {
			sent = append(sent, user("more"))
			r := s.respondTo(sent)
			require.NotContains(t, texts(s.given(r["id"])), "LEAKME")
			require.LessOrEqual(t, len(s.own(s.sessionOf(r["id"].(string)))), len(sent))
			sent = append(sent, assistant("yes"))
		}
		require.Equal(t, before+1, len(s.branches(id)), "one branch")
	}
}

// How a response deals with a message that is being answered is the deployment's to say.
func TestTheDeploymentSaysWhatAResponseDoesWithAPendingTurn(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func(prompt []string) modeltest.Answer {
		return modeltest.Answer{Text: "ok", Stall: last(prompt) == "user: slow"}
	})
	s := start(t, answeredBy(m), func(s *stack) { s.cfg.OnPending = services.Interrupt })
	id := s.begin()
	var all sync.WaitGroup
	var slow reply
	all.Go(func() { slow = s.do("POST", "/v1/responses", `{"input":"slow","conversation":"`+id+`"}`) })
	<-model.Asked
	s.within(t, `{"input":"next","conversation":"`+id+`"}`)
	all.Wait()
	require.Equal(t, []string{"slow", "ok", "next", "ok"}, texts(s.list(id, 10)))
	for _, r := range []map[string]any{slow.body, s.must("GET", "/v1/responses/"+slow.body["id"].(string), "")} {
		require.Equal(t, []any{"incomplete", nil}, []any{r["status"], r["incomplete_details"]})
	}
}

// An output whose call is gone ends no question that a model is being asked.
func TestAStrayOutputAnswersNobodyElsesQuestion(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	model, m := scripted(t, func(prompt []string) modeltest.Answer {
		if last(prompt) == "user: b" {
			return modeltest.Answer{Text: "to b", Hold: held}
		}
		return modeltest.Answer{Text: "to the output"}
	})
	s := start(t, answeredBy(m))
	id := s.begin(user("q"), function("c"))
	s.must("POST", "/v1/sessions/"+id+"/turns/"+s.turns(id)[0]["turn_id"].(string)+"/redact", `{}`)
	in := `,"conversation":"` + id + `"`
	var all sync.WaitGroup
	all.Go(func() { s.do("POST", "/v1/responses", `{"input":"b"`+in+`}`) })
	<-model.Asked
	all.Go(func() { s.respondTo([]string{result("c", "x")}, in) })
	hang.Until(t, func() bool { return len(s.list(id, 10)) == 2 })
	close(held)
	all.Wait()
	require.Equal(t, []string{"b", "to b", "call_output c", "to the output"}, saidIn(s.list(id, 10)))
}

// What names only what is gone is refused, and begins nothing: it neither comes back nor makes a session without turns.
func TestAnInputOfNothingButWhatIsGone(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(s *stack, id, turn string){
		"redacted": func(s *stack, id, turn string) {
			s.must("POST", "/v1/sessions/"+id+"/turns/"+turn+"/redact", `{}`)
		},
		"corrected": func(s *stack, id, turn string) {
			s.must("POST", "/v1/sessions/"+id+"/turns/"+turn+"/correct", `{"request_id":"c","answer_neutral":"right"}`)
		},
	} {
		s := start(t, answeredBy(answer.Echo{}))
		id := s.begin(user("q"), function("c"), result("c", "x"), assistant("so x"))
		items := agentsHistory(s, id)
		gone(s, id, s.turns(id)[0]["turn_id"].(string))
		head := s.head()
		for _, more := range []string{"", `,"conversation":"` + id + `"`} {
			a := s.do("POST", "/v1/responses", `{"input":[`+items[2]+`]`+more+`}`)
			require.Equal(t, http.StatusBadRequest, a.status, "%s%s: %s", name, more, a.raw)
			require.Equal(t, head, s.head(), "%s%s", name, more)
		}
	}
}

// An output that its turn has comes again whether its call's item is deleted or stands far back.
func TestAnOutputWhoseCallIsGoneOrFarBack(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	run := []string{user("q"), function("c"), result("c", "x"), assistant("so x")}
	for name, id := range map[string]string{"gone": s.begin(run...), "far": s.begin(run...)} {
		if name == "gone" {
			s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(s.list(id, 10))[1], "")
		} else {
			for n := range 25 {
				s.post(id, user(fmt.Sprint("q", n)), assistant(fmt.Sprint("a", n)))
			}
		}
		s.respondTo([]string{result("c", "x"), user("b")}, `,"conversation":"`+id+`"`)
		outputs := 0
		for _, said := range saidIn(s.list(id, 100)) {
			if said == "call_output c" {
				outputs++
			}
		}
		require.Equal(t, 1, outputs, name)
	}
}
