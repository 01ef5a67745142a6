package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
	"github.com/turnledger/turnledger/deploy/testkit/prompttest"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/client/importer"
	"github.com/turnledger/turnledger/services/model/endpoint"
)

// TestTheDoor holds that no conversation dies: whatever clients, pipelines, imports and publishers send, in whatever
// form, is refused with an error that says so, or every later call is answered, behind endpoints that refuse what the
// vendors' do. TURNLEDGER_TORTURE runs it for an hour, or for the duration that it is. A failure prints its seed.
//
//conformance:f19
func TestTheDoor(t *testing.T) {
	d := openDoor(t)
	for _, way := range slices.Sorted(maps.Keys(d.ways())) {
		d.counts[way] = &[2]int{}
	}
	checks, until := 60, time.Time{}
	if torture := os.Getenv("TURNLEDGER_TORTURE"); torture != "" {
		long, err := time.ParseDuration(torture)
		if err != nil {
			long = time.Hour
		}
		checks, until = 1_000_000, time.Now().Add(long)
	}
	viewtest.Checks(t, checks)
	defer d.report()
	rapid.Check(t, func(rt *rapid.T) {
		if !until.IsZero() && time.Now().After(until) {
			return
		}
		v := d.visitor(rt)
		for range rapid.IntRange(1, 4).Draw(rt, "messages") {
			way := rapid.SampledFrom(slices.Sorted(maps.Keys(d.ways()))).Draw(rt, "way")
			d.counts[way][v.came(d.ways()[way])]++
		}
		v.later()
	})
}

// door is three processes on one log, each with an endpoint of another vendor behind it.
type door struct {
	t        *testing.T
	stacks   map[string]*stack
	models   map[string]*modeltest.Server
	publish  func(e events.Fact) error
	sessions int
	counts   map[string]*[2]int // taken and refused, by way
}

func openDoor(t *testing.T) *door {
	server := natstest.Server(t)
	log := natstest.LogOn(t, server, 1)
	js := natstest.JetStream(t, natstest.Connect(t, server))
	d := &door{t: t, stacks: map[string]*stack{}, models: map[string]*modeltest.Server{}, counts: map[string]*[2]int{}}
	d.publish = func(f events.Fact) error {
		_, err := js.PublishMsg(t.Context(), messageOf(t, f))
		return err
	}
	for vendor, client := range vendors {
		m := modeltest.New(t, answersAtDoor())
		m.Demand = demandOf(t, vendor)
		model := client(endpoint.Config{URL: m.URL + "/v1", Key: "k", Name: "m"})
		d.models[vendor] = m
		var of answer.Config
		d.stacks[vendor] = startOn(t, log, answeredAs(model, func(c *answer.Config) {
			c.Timeout = hang.Limit // it bounds the answer too
			of = *c
		}), func(s *stack) { s.native.Chat = answer.New(of) })
	}
	return d
}

// forbidden is in questions that a model's filter stops. Their endpoint refuses every later question behind one.
const forbidden, useTool, later = "forbidden fruit", "use the tool", "and what of it later?"

// thought is what a model thinks before it calls, and signature what it sends with a call. It wants to see both again.
const (
	thought   = "hm, the tool"
	signature = "signed by the model"
)

func answersAtDoor() func(prompt []string) modeltest.Answer {
	var calls atomic.Int64
	return func(prompt []string) modeltest.Answer {
		switch last := prompt[len(prompt)-1]; {
		case strings.Contains(last, forbidden):
			return modeltest.Answer{Filtered: true}
		case strings.Contains(last, useTool):
			return modeltest.Answer{Thoughts: thought, Calls: []modeltest.Call{{
				ID: fmt.Sprint("thought_", calls.Add(1)), Name: "f", Arguments: "{}",
				More: map[string]any{"extra_content": map[string]any{"google": map[string]any{"signature": signature}}},
			}}}
		}
		return modeltest.Answer{Text: "4"}
	}
}

// demandOf returns what a vendor's endpoint asks for besides the form of its API.
func demandOf(t *testing.T, vendor string) func(body json.RawMessage) string {
	official := func(any) error { return nil }
	if path := os.Getenv(openaitest.Variable); path != "" && vendor == "responses" {
		official = openaitest.Request(t, path, "CreateResponse").Validate
	}
	return func(body json.RawMessage) string {
		var request any
		if err := json.Unmarshal(body, &request); err != nil {
			return err.Error()
		}
		if err := official(request); err != nil {
			return err.Error()
		}
		var in struct{ Messages, Input []json.RawMessage }
		_ = json.Unmarshal(body, &in) // it was read before
		list := append(in.Messages, in.Input...)
		if last := string(list[len(list)-1]); strings.Contains(last, later) || strings.Contains(last, useTool) {
			for _, raw := range list {
				if strings.Contains(string(raw), forbidden) {
					return "the history is filtered"
				}
			}
		}
		for _, raw := range slices.Backward(in.Messages) {
			m := string(raw)
			if strings.Contains(m, `"role":"user"`) || vendor != "chat" {
				break
			}
			if strings.Contains(m, `"thought_`) && strings.Contains(m, `"tool_calls"`) &&
				(!strings.Contains(m, thought) || !strings.Contains(m, signature)) {
				return "what came with a call is missing"
			}
		}
		return ""
	}
}

// messageOf returns the message that publishes a fact.
func messageOf(t *testing.T, f events.Fact) *nats.Msg {
	env := must.Get(events.Encode(f, time.Now().Add(-time.Hour)))(t)
	return &nats.Msg{Subject: env.Subject, Header: nats.Header(env.Header), Data: env.Body}
}

// visitor writes to one conversation.
type visitor struct {
	*door
	rt      *rapid.T
	session string
	turns   int
	before  map[string]int // how many requests each endpoint had refused
}

// visitor begins a conversation: one of OpenAI's, or that of a pipeline.
func (d *door) visitor(rt *rapid.T) *visitor {
	d.sessions++
	v := &visitor{door: d, rt: rt, session: fmt.Sprint("door-", d.sessions), before: map[string]int{}}
	for vendor, m := range d.models {
		v.before[vendor] = len(m.Refused())
	}
	if rapid.Bool().Draw(rt, "of OpenAI") {
		v.session, _ = v.send("POST", "/v1/conversations", `{}`).body["id"].(string)
	} else {
		v.send("POST", "/v1/sessions/"+v.session+"/turns",
			`{"request_id":"r0","question_neutral":"q","answer_neutral":"a"}`)
	}
	return v
}

// came says whether what came in was taken (0) or refused (1).
func (v *visitor) came(way func(*visitor) reply) int {
	a := way(v)
	if a.status < 300 {
		return 0
	}
	if a.status >= 500 || a.status < 400 {
		v.fail(a, "neither taken nor refused")
	}
	detail, _ := a.body["detail"].(string)
	of, _ := a.body["error"].(map[string]any)
	if said, _ := of["message"].(string); detail+said == "" {
		v.fail(a, "refused without a word")
	}
	return 1
}

// any returns one of the processes.
func (v *visitor) any() *stack {
	return v.stacks[rapid.SampledFrom([]string{"chat", "anthropic", "responses"}).Draw(v.rt, "process")]
}

func (v *visitor) send(method, path, body string) reply {
	return v.sendTo(v.any(), method, path, body)
}

func (v *visitor) sendTo(s *stack, method, path, body string) reply {
	r := httptest.NewRequestWithContext(v.t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("X-Turnledger-On-Pending", "interrupt")
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	a := reply{status: w.Code, header: w.Header(), raw: w.Body.String()}
	_ = json.Unmarshal([]byte(a.raw), &a.body) // what is no object has no body
	return a
}

func (v *visitor) fail(a reply, why string) {
	var log strings.Builder
	for e, err := range v.stacks["chat"].log.Session(v.t.Context(), v.session, 0, 1<<40) {
		if err == nil {
			fmt.Fprintf(&log, "%s %s\n", e.Type, e.Body)
		}
	}
	var refused []string
	for vendor, m := range v.models {
		if all := m.Refused()[v.before[vendor]:]; len(all) > 0 {
			refused = append(refused, all[len(all)-1])
		}
	}
	var printed strings.Builder // what went wrong with a model is told to the operator alone
	for vendor, s := range v.stacks {
		all := s.logs.String()
		fmt.Fprintf(&printed, "%s: %s\n", vendor, all[max(0, len(all)-4_000):])
	}
	v.rt.Logf("%d %s\nlog:\n%s\nrefused:\n%s\nprinted:\n%s", a.status, a.raw, log.String(),
		strings.Join(refused, "\n"), printed.String())
	v.rt.Fatal(why) // the same words each time, by which rapid knows a failure when it shrinks it
}

// later makes every later call.
func (v *visitor) later() {
	v.settle()
	for _, vendor := range []string{"chat", "anthropic", "responses"} {
		s := v.stacks[vendor]
		v.good(s, vendor, "POST", "/v1/threads/"+v.session+"/messages",
			`{"content":"`+later+`","max_messages":1000,"on_pending":"interrupt"}`)
		v.good(s, vendor, "POST", "/v1/responses", `{"input":"`+later+`","conversation":"`+v.session+`"}`)
	}
	s := v.any()
	v.good(s, "items", "GET", "/v1/conversations/"+v.session+"/items?limit=100", "")
	v.good(s, "history", "GET", "/v1/sessions/"+v.session+"/history", "")
	const ask = `{"message":"now","max_messages":1000,"include_pending":true,"format":`
	for form, problems := range map[string]func([]json.RawMessage) []prompttest.Problem{
		`"openai"`: prompttest.Readable, `"anthropic"`: prompttest.Anthropic,
	} {
		a := v.good(s, form, "POST", "/v1/sessions/"+v.session+"/context", ask+form+`}`)
		var out struct{ Messages []json.RawMessage }
		require.NoError(v.rt, json.Unmarshal([]byte(a.raw), &out))
		if p := problems(out.Messages); len(p) > 0 {
			v.fail(a, fmt.Sprint(form, " context: ", p))
		}
	}
}

// settle answers the turns that wait for an answer, since a chat would wait for them for two minutes. Those that were
// published long ago stay as they are.
func (v *visitor) settle() {
	turns := "/v1/sessions/" + v.session + "/turns"
	for _, one := range v.send("GET", turns+"?status=pending&limit=1000", "").body["turns"].([]any) {
		if t := one.(map[string]any); t["status"] == "pending" {
			v.send("POST", fmt.Sprintf("%s/%s/finalize", turns, t["turn_id"]), `{"answer_neutral":"a"}`)
		}
	}
}

func (v *visitor) good(s *stack, what, method, path, body string) reply {
	a := v.sendTo(s, method, path, body)
	if a.status != http.StatusOK {
		v.fail(a, what)
	}
	return a
}

func (v *visitor) messages() string { return list(prompttest.DrawMessages(v.rt, 4)) }
func (v *visitor) items() string    { return list(prompttest.DrawItems(v.rt, 4)) }

func list(raws []json.RawMessage) string {
	all := make([]string, len(raws))
	for i, raw := range raws {
		all[i] = string(raw)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// turn returns the members of a turn, whole or only begun.
func (v *visitor) turn() string {
	v.turns++
	text := rapid.SampledFrom([]string{"", `,"question_neutral":"q"`, `,"question_neutral":"q","answer_neutral":"a"`}).
		Draw(v.rt, "texts")
	body := fmt.Sprintf(`"request_id":"r%d"%s,"question_messages":%s`, v.turns, text, v.messages())
	if rapid.IntRange(0, 3).Draw(v.rt, "whole") > 0 {
		body += `,"answer_messages":` + v.messages()
	}
	return body
}

// ways are the ways in.
func (d *door) ways() map[string]func(*visitor) reply {
	return map[string]func(*visitor) reply{
		"turns": func(v *visitor) reply {
			return v.send("POST", "/v1/sessions/"+v.session+"/turns", "{"+v.turn()+"}")
		},
		"finalize": (*visitor).finalize,
		"batch":    (*visitor).batch,
		"import":   (*visitor).imported,
		"items": func(v *visitor) reply {
			return v.send("POST", "/v1/conversations/"+v.session+"/items", `{"items":`+v.items()+`}`)
		},
		"responses": func(v *visitor) reply {
			return v.send("POST", "/v1/responses", `{"conversation":"`+v.session+`","input":`+v.items()+`}`)
		},
		"responses, not stored": func(v *visitor) reply {
			return v.send("POST", "/v1/responses", `{"store":false,"input":`+v.items()+`}`)
		},
		"published": (*visitor).published,
		"tool":      (*visitor).tool,
		"filtered":  (*visitor).filtered,
	}
}

func (v *visitor) finalize() reply {
	v.turns++
	body := fmt.Sprintf(`{"request_id":"r%d","question_neutral":"q"}`, v.turns)
	begun := v.send("POST", "/v1/sessions/"+v.session+"/turns", body)
	if begun.status != http.StatusCreated {
		return begun
	}
	return v.send("POST", fmt.Sprintf("/v1/sessions/%s/turns/%s/finalize", v.session, begun.body["turn_id"]),
		`{"answer_messages":`+v.messages()+`}`)
}

func (v *visitor) batch() reply {
	line := func() string { return `{"session_id":"` + v.session + `",` + v.turn() + "}\n" }
	a := v.send("POST", "/v1/turns", line()+line())
	for line := range strings.Lines(a.raw) {
		var l reply
		if json.Unmarshal([]byte(line), &l.body) != nil {
			v.fail(a, "a line of a batch")
		}
		status, _ := l.body["http_status"].(float64)
		if l.status, l.raw = int(status), line; l.status >= 300 {
			a = l
		}
	}
	return a
}

// imported imports a conversation, of which a part may be there.
func (v *visitor) imported() reply {
	file := filepath.Join(v.t.TempDir(), "import.jsonl")
	line := `{"conversation_id":"` + v.session + `","messages":` + v.messages() + `}`
	require.NoError(v.rt, os.WriteFile(file, []byte(line), 0o600))
	c := must.Get(client.New(client.Config{URL: v.any().url, Patience: time.Second}))(v.t)
	defer c.Close()
	out := reply{status: http.StatusOK}
	_, err := importer.Import(v.t.Context(), []string{file}, importer.Config{
		First: c, Later: c, From: importer.FromLines, Parallel: 1, Passed: func(int64) {},
		Explain: func(_ context.Context, err error) error { return err },
		Failed: func(_ string, err error) {
			out.status, out.raw, out.body = http.StatusBadRequest, err.Error(), map[string]any{"detail": err.Error()}
			if refused, is := errors.AsType[*client.Error](err); is {
				out.status = refused.Status
			}
		},
	})
	require.NoError(v.rt, err)
	return out
}

// published publishes events, whose messages need be none.
func (v *visitor) published() reply {
	v.turns++
	odd := func() json.RawMessage {
		if raw := v.messages(); rapid.IntRange(0, 5).Draw(v.rt, "a list") > 0 {
			return json.RawMessage(raw)
		}
		return json.RawMessage(rapid.SampledFrom([]string{`null`, `{}`, `"text"`, `[]`, `[[]]`}).Draw(v.rt, "no list"))
	}
	request := fmt.Sprint("r", v.turns)
	id := events.TurnID(v.session, request)
	facts := []events.Fact{&events.TurnStarted{TurnID: id, SessionID: v.session, RequestID: request,
		Question: events.Question{QuestionNeutral: "q", QuestionMessages: odd()}}}
	if rapid.Bool().Draw(v.rt, "final") {
		facts = append(facts, &events.TurnFinalized{TurnID: id, SessionID: v.session,
			Answer: events.Answer{AnswerNeutral: "a", AnswerMessages: odd()}})
	}
	for _, f := range facts {
		require.NoError(v.rt, v.publish(f))
	}
	return reply{status: http.StatusOK}
}

// tool has a model call a tool, and gives it the result.
func (v *visitor) tool() reply {
	s := v.any()
	on := `{"conversation":"` + v.session + `","tools":[{"type":"function","name":"f","strict":false,` +
		`"parameters":{"type":"object"}}],"input":`
	first := v.sendTo(s, "POST", "/v1/responses", on+`"`+useTool+`"}`)
	if first.status != http.StatusOK {
		return first
	}
	for _, i := range first.body["output"].([]any) {
		if call, is := i.(map[string]any)["call_id"].(string); is {
			output := `[{"type":"function_call_output","call_id":"` + call + `","output":"1"}]`
			return v.sendTo(s, "POST", "/v1/responses", on+output+`}`)
		}
	}
	v.fail(first, "no call")
	return first
}

// filtered asks what the model's filter stops.
func (v *visitor) filtered() reply {
	if rapid.Bool().Draw(v.rt, "natively") {
		v.settle()
		return v.send("POST", "/v1/threads/"+v.session+"/messages",
			`{"content":"`+forbidden+`","on_pending":"interrupt"}`)
	}
	return v.send("POST", "/v1/responses", `{"conversation":"`+v.session+`","input":"`+forbidden+`"}`)
}

// report says what share was refused.
func (d *door) report() {
	for _, way := range slices.Sorted(maps.Keys(d.counts)) {
		c := d.counts[way]
		d.t.Logf("%s: %d taken, %d refused (%d%%)", way, c[0], c[1], 100*c[1]/max(1, c[0]+c[1]))
	}
	d.t.Logf("%d conversations", d.sessions)
}
