package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/events"
)

// A redaction, a correction and a prune, in the middle of a history and at its end; then its client, which still has
// the words, sends it whole with ten calls, through every surface that takes a history. Nothing erased stands in the
// log again, by its bytes, nothing forks, and nothing that was said since is lost.
func TestNothingErasedComesBackHoweverOftenItIsSent(t *testing.T) {
	t.Parallel()
	for _, way := range []string{
		"completions", "completions, the newest only", "responses", "responses, ids of answers alone",
		"a conversation", "a branch by completions", "a branch by responses",
	} {
		for _, end := range []string{"redact", "correct", "prune", "prune the question", ""} {
			t.Run(strings.TrimSpace(way+" "+end), func(t *testing.T) {
				t.Parallel()
				c := &historian{way: way}
				_, m := scripted(t, func(prompt []string) modeltest.Answer {
					return modeltest.Answer{Text: "re " + strings.TrimPrefix(last(prompt), "user: ")}
				})
				c.stack = start(t, answeredBy(m))
				c.begin()
				for n := range 7 {
					c.ask(fmt.Sprintf("what %d", n))
				}
				if strings.HasPrefix(way, "a branch") {
					c.history = slices.Clone(c.history[:4])
					for n := range 7 {
						c.ask(fmt.Sprintf("edited %d", n))
					}
				}
				turns := c.turns(c.in)
				at := func(n int) map[string]any { return turns[len(turns)-7+n] }
				var withdrawn []string
				for n, how := range []string{1: "redact", 3: "correct", 4: "prune"} {
					if how != "" {
						withdrawn = append(withdrawn, c.withdraw(how, at(n)))
					}
				}
				if end != "" {
					withdrawn = append(withdrawn, c.withdraw(end, at(6)))
				}
				c.erasePruned(c.in)
				mark, in := c.head(), c.in
				for n := range 10 {
					c.ask(fmt.Sprintf("then %d", n))
					require.Equal(t, in, c.in, "%v %v %v", c.said(c.in), c.branches(in), c.said(in))
				}
				for seq := mark + 1; seq <= c.head(); seq++ {
					e, _, err := c.log.At(t.Context(), events.Position{Seq: seq})
					require.NoError(t, err)
					require.NotContains(t, []string{events.TypeSessionForked, events.TypeSessionBranched}, e.Type)
					raw, err := json.Marshal(e.Fact)
					require.NoError(t, err)
					for _, text := range withdrawn {
						require.NotContains(t, string(raw), text)
					}
				}
				said := strings.Join(c.said(c.in), "\n") + "\n"
				for n := range 10 {
					require.Equal(t, 1, strings.Count(said, fmt.Sprintf("then %d|re then %d\n", n, n)), said)
				}
			})
		}
	}
}

// historian is a client that keeps its history itself, and sends it in a way. in is where its last question stood.
type historian struct {
	*stack

	way, in string
	history []string
	names   string // the conversation that it names
}

func (c *historian) begin() {
	switch {
	case strings.HasPrefix(c.way, "completions"), c.way == "a branch by completions":
		c.in = "s"
	case c.way == "a conversation":
		c.in = c.stack.begin()
		c.names = `,"conversation":"` + c.in + `"`
	}
}

func (c *historian) ask(text string) {
	c.t.Helper()
	c.history = append(c.history, user(text))
	if strings.Contains(c.way, "completions") {
		sent := c.history
		if strings.Contains(c.way, "newest") {
			sent = sent[max(0, len(sent)-9):]
		}
		body := `{"messages":[` + strings.Join(sent, ",") + `]}`
		a := c.do("POST", completions, body, "X-Turnledger-Session", "s", "X-Turnledger-History", "client")
		require.Equal(c.t, http.StatusOK, a.status, a.raw)
		c.in = a.header.Get("X-Turnledger-Session")
		said := a.body["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["content"].(string)
		c.history = append(c.history, assistant(said))
		return
	}
	r := c.respondTo(c.history, c.names)
	c.in = c.sessionOf(r["id"].(string))
	answer := r["output"].([]any)[0]
	if !strings.Contains(c.way, "ids of answers") {
		given := c.given(r["id"])
		question, err := json.Marshal(given[len(given)-1])
		require.NoError(c.t, err)
		c.history[len(c.history)-1] = string(question)
	}
	raw, err := json.Marshal(answer)
	require.NoError(c.t, err)
	c.history = append(c.history, string(raw))
}

// withdraw takes something of a turn, and returns a text that is gone.
func (c *historian) withdraw(how string, turn map[string]any) (text string) {
	c.t.Helper()
	question, answer := turn["question_neutral"].(string), turn["answer_neutral"].(string)
	path := "/v1/sessions/" + c.in + "/turns/" + turn["turn_id"].(string) + "/"
	prune := func(n int) {
		for _, i := range c.list(c.in, 100) {
			if i := i.(map[string]any); texts([]any{i})[0] == []string{question, answer}[n] {
				c.must("DELETE", "/v1/conversations/"+c.in+"/items/"+i["id"].(string), "")
			}
		}
	}
	switch how {
	case "redact":
		require.Equal(c.t, http.StatusOK, c.do("POST", path+"redact", `{}`).status)
		return question
	case "correct":
		a := c.do("POST", path+"correct", `{"request_id":"`+question+`","answer_neutral":"right"}`)
		require.Less(c.t, a.status, 300, a.raw)
		return answer
	case "prune":
		prune(1)
		return answer
	default:
		prune(0)
		// The answer has the same words, since the model says again what it was asked.
		return `"` + question + `"`
	}
}
