package openai_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/contextbuilder/summarizer"
)

// digester is a model that writes as a summary the words which it is given that begin with "fact", and what it had
// written before.
type digester struct {
	mu    sync.Mutex
	given []string
}

func (*digester) Name() string { return "small" }

func (*digester) Format() services.Format { return services.OpenAI }

func (d *digester) Answer(
	_ context.Context, p services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	var m struct{ Content string }
	_ = json.Unmarshal(p.Messages[1], &m)
	d.mu.Lock()
	d.given = append(d.given, m.Content)
	d.mu.Unlock()
	words := []string{"digest"}
	for _, w := range strings.FieldsFunc(m.Content, func(r rune) bool { return strings.ContainsRune(` ",.{}[]:`, r) }) {
		if strings.HasPrefix(w, "fact") {
			words = append(words, w)
		}
	}
	part := services.AnswerPart{Kind: services.PartText, Text: strings.Join(words, " ")}
	emit(services.AnswerPiece{AnswerPart: part})
	return services.ModelAnswer{Parts: []services.AnswerPart{part}, Finish: services.FinishStop}, nil
}

func (d *digester) calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.given)
}

// compacting is a stack that compacts histories, with what its models were asked.
func compacting(t *testing.T, settings ...setting) (*stack, *digester, chan []string) {
	t.Helper()
	d := &digester{}
	endpoint, m := scripted(t, func(p []string) modeltest.Answer {
		return modeltest.Answer{Text: "I see " + p[len(p)-1] + "."}
	})
	var s *stack
	with := func(of *stack) {
		answeredAs(m, func(c *answer.Config) {
			c.Summarizer = summarizer.New(summarizer.Config{
				Model: d, Sessions: of.services.Reader, Summaries: of.services.History,
				Count: contextbuilder.Estimate{}.Count,
			})
		})(of)
	}
	s = start(t, append([]setting{with}, settings...)...)
	return s, d, endpoint.Asked
}

// shown returns what the model was asked last.
func shown(asked chan []string) (out string) {
	for {
		select {
		case p := <-asked:
			out = strings.Join(p, "\n")
		default:
			return out
		}
	}
}

func (s *stack) compact(body string, header ...string) (item string, whole map[string]any) {
	s.t.Helper()
	out := s.must("POST", "/v1/responses/compact", body, header...)
	require.Equal(s.t, "response.compaction", out["object"])
	items := out["output"].([]any)
	require.Len(s.t, items, 1)
	raw, err := json.Marshal(items[0])
	require.NoError(s.t, err)
	return string(raw), out
}

// A history is compacted to one item that says nothing to those who hold it, and stands for the history in a prompt.
func TestAHistoryIsCompacted(t *testing.T) {
	t.Parallel()
	s, d, asked := compacting(t)
	first := s.must("POST", "/v1/responses", `{"input":"fact1 is red"}`)["id"].(string)
	second := s.must("POST", "/v1/responses",
		`{"input":"fact2 is blue","previous_response_id":"`+first+`"}`)["id"].(string)
	item, whole := s.compact(`{"model":"m","previous_response_id":"` + second + `"}`)
	require.NotContains(t, item, "fact")
	require.Contains(t, item, `"type":"compaction"`)
	usage := whole["usage"].(map[string]any)
	require.Greater(t, usage["input_tokens"], 0.0)
	require.Greater(t, usage["output_tokens"], 0.0)

	_, again := s.compact(`{"model":"m","previous_response_id":"` + second + `"}`)
	require.Equal(t, 1, d.calls(), "a summary is made once")
	require.Equal(t, 0.0, again["usage"].(map[string]any)["total_tokens"])

	shown(asked)
	third := s.must("POST", "/v1/responses",
		`{"input":[`+item+`,{"role":"user","content":"fact3 is green"}]}`)["id"].(string)
	prompt := shown(asked)
	require.Contains(t, prompt, "system: Summary of the conversation so far:\ndigest fact1")
	require.Contains(t, prompt, "fact2")
	require.NotContains(t, prompt, "blue")
	require.NotContains(t, prompt, "tlc1_")
	listed := s.must("GET", "/v1/responses/"+third+"/input_items", "")["data"].([]any)
	require.Len(t, listed, 2)

	fourth := s.must("POST", "/v1/responses", `{"input":"and now?","previous_response_id":"`+third+`"}`)["id"].(string)
	require.Contains(t, shown(asked), "digest fact1")

	// A compaction of what has a compaction stands for both.
	item, _ = s.compact(`{"model":"m","previous_response_id":"` + fourth + `"}`)
	s.must("POST", "/v1/responses", `{"input":[`+item+`,{"role":"user","content":"go on"}]}`)
	prompt = shown(asked)
	for _, fact := range []string{"fact1", "fact2", "fact3"} {
		require.Contains(t, prompt, fact)
	}
}

// What is not recorded is compacted, too: its text is sealed in the item.
func TestAnInputIsCompacted(t *testing.T) {
	t.Parallel()
	s, _, asked := compacting(t)
	item, _ := s.compact(`{"model":"m","input":[{"role":"user","content":"fact7 is old"},
		{"role":"assistant","content":"I note fact7"}]}`)
	require.NotContains(t, item, "fact")
	s.must("POST", "/v1/responses", `{"store":false,"input":[`+item+`,{"role":"user","content":"go on"}]}`)
	require.Contains(t, shown(asked), "digest fact7")
	again, _ := s.compact(`{"model":"m","input":[` + item + `,{"role":"user","content":"fact8 is new"}]}`)
	s.must("POST", "/v1/responses", `{"input":[`+again+`,{"role":"user","content":"go on"}]}`)
	prompt := shown(asked)
	require.Contains(t, prompt, "fact7")
	require.Contains(t, prompt, "fact8")
}

// A compaction is void once its turns change, and for others than its caller. Then it is an item that no model is
// shown, as one that somebody else made.
func TestACompactionThatIsVoid(t *testing.T) {
	t.Parallel()
	callers := ring{
		"ada": {Name: "ada", Scopes: all, IdentityID: "ada"}, "bob": {Name: "bob", Scopes: all, IdentityID: "bob"},
		"all": {Name: "all", Scopes: all}, "other": {Name: "other", Scopes: all},
	}
	s, _, asked := compacting(t, func(s *stack) { s.wire.Open, s.wire.Auth = false, callers })
	as := func(key string) []string { return []string{"Authorization", "Bearer " + key} }
	made := func(key string) (id, item string) {
		id = s.must("POST", "/v1/responses", `{"input":"fact1 of `+key+`"}`, as(key)...)["id"].(string)
		item, _ = s.compact(`{"model":"m","previous_response_id":"`+id+`"}`, as(key)...)
		return id, item
	}
	sees := func(key, item string, want bool) {
		t.Helper()
		shown(asked)
		out := s.must("POST", "/v1/responses", `{"input":[`+item+`,{"role":"user","content":"go on"}]}`, as(key)...)
		prompt := shown(asked)
		require.Contains(t, prompt, "go on")
		require.Equal(t, want, strings.Contains(prompt, "fact1"), prompt)
		require.NotContains(t, prompt, "compaction")
		items := s.must("GET", "/v1/responses/"+out["id"].(string)+"/input_items", "", as(key)...)["data"].([]any)
		require.Len(t, items, 2, "it is kept all the same")
	}
	id, item := made("ada")
	sees("ada", item, true)
	sees("bob", item, false)
	sees("all", item, false)
	sees("ada", `{"type":"compaction","encrypted_content":"gAAAAABfact1"}`, false)
	sees("ada", strings.Replace(item, "tlc1_", "tlc1_AA", 1), false)
	refused := s.do("POST", "/v1/responses/compact", `{"model":"m","previous_response_id":"`+id+`"}`, as("bob")...)
	require.Contains(t, refused.raw, "previous_response_not_found")
	s.must("DELETE", "/v1/responses/"+id, "", as("ada")...)
	sees("ada", item, false)
	_, item = made("all")
	sees("other", item, true)
	sees("ada", item, false)
}

// Without a model that summarises nothing is compacted.
func TestWithoutASummaryModelNothingIsCompacted(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	a := s.do("POST", "/v1/responses/compact", `{"model":"m","input":"q"}`)
	require.Equal(t, http.StatusBadRequest, a.status, a.raw)
	require.Contains(t, a.raw, "TURNLEDGER_SUMMARY_URL")
	s, _, _ = compacting(t)
	require.Equal(t, http.StatusBadRequest, s.do("POST", "/v1/responses/compact", `{"model":"m"}`).status)
	require.Equal(t, http.StatusBadRequest, s.do("POST", "/v1/responses/compact",
		`{"model":"m","previous_response_id":"resp_none"}`).status)
}

// OpenAI's own client compacts, and goes on with what it got.
func TestTheOfficialClientCompacts(t *testing.T) {
	t.Parallel()
	s, _, asked := compacting(t)
	c := s.client()
	first := create(t, c, false, responses.ResponseNewParams{Input: asks("fact1 is red")})
	out, err := c.Responses.Compact(t.Context(), responses.ResponseCompactParams{
		Model: "gpt-5", PreviousResponseID: sdk.String(first.ID),
	})
	require.NoError(t, err)
	item := out.Output[0].AsCompaction()
	require.NotEmpty(t, item.EncryptedContent)
	input := responses.ResponseInputParam{
		{OfCompaction: &responses.ResponseCompactionItemParam{EncryptedContent: item.EncryptedContent}},
		responses.ResponseInputItemParamOfMessage("go on", responses.EasyInputMessageRoleUser),
	}
	create(t, c, false, responses.ResponseNewParams{
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input},
	})
	require.Contains(t, shown(asked), "digest fact1")
}
