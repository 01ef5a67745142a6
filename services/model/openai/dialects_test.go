package openai_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/model/endpoint"
	"github.com/turnledger/turnledger/services/model/openai"
)

// TestDialects: what servers send that call themselves compatible with OpenAI. Each file of testdata is an answer of
// one; ids that the server did not give are shown as "minted". What is recorded of each, and what the server gets back
// at the next step, is in services/httpapi/openai/testdata/dialects.
func TestDialects(t *testing.T) {
	t.Parallel()
	type part = services.AnswerPart
	call := func(id, name, arguments string) part {
		return part{Kind: services.PartCall, CallID: id, Name: name, Text: arguments}
	}
	text := func(s string) part { return part{Kind: services.PartText, Text: s} }
	thought := func(s string) part { return part{Kind: services.PartReasoning, Text: s} }
	signed, cited := call("a", "w", "{}"), text("See it.")
	signed.Item = json.RawMessage(`{"type":"function_call","extra_content":{"google":{"thought_signature":"sig"}}}`)
	cited.Item = json.RawMessage(`{"type":"message","content":[{"type":"output_text","text":"See it.","annotations":[
		{"type":"url_citation","url":"https://a.test","title":"A","start_index":0,"end_index":3}]}]}`)
	const failed, broken = services.Finish("failed"), services.Finish("broken")
	faults := map[services.Finish]error{failed: endpoint.ErrFailed, broken: endpoint.ErrBroken}
	for name, want := range map[string]struct {
		finish services.Finish
		parts  []part
	}{
		"calls.sse":                {services.FinishStop, []part{call("a", "w", `{"city":"Oslo"}`), call("b", "w", `{"city":"Rome"}`)}},
		"reasoning-and-a-call.sse": {services.FinishStop, []part{thought("hm"), text("I look."), call("a", "w", "{}")}},
		"unknown-members.sse":      {services.FinishStop, []part{text("Hello")}},
		"filter-results.sse":       {services.FinishStop, []part{text("Hello")}},
		"filtered-half-way.sse":    {services.FinishFiltered, []part{text("Hel")}},
		"no-done.sse":              {services.FinishStop, []part{text("Hello")}},
		"no-end.sse":               {broken, []part{text("Hel")}},
		"calls-without-index.sse":  {services.FinishStop, []part{call("a", "w", `{"city":"Oslo"}`), call("b", "w", `{"city":"Rome"}`)}},
		"calls-all-index-0.sse":    {services.FinishStop, []part{call("a", "w", `{"city":"Oslo"}`), call("b", "w", `{"city":"Rome"}`)}},
		"calls-without-ids.sse": {services.FinishStop, []part{
			call("minted", "w", `{"city":"Oslo"}`), call("minted", "w", `{"city":"Rome"}`), call("minted", "t", `{"zone": "CET"}`),
		}},
		"one-id-twice.sse":        {services.FinishStop, []part{call("call_0", "w", "{}"), call("minted", "t", "{}")}},
		"names-repeated.sse":      {services.FinishStop, []part{call("a", "w", `{"city":"Oslo"}`)}},
		"no-arguments.sse":        {services.FinishStop, []part{call("a", "now", "{}"), call("b", "then", "{}")}},
		"members-of-calls.sse":    {services.FinishStop, []part{signed}},
		"older-call.sse":          {services.FinishStop, []part{call("minted", "w", `{"city":"Oslo"}`)}},
		"content-as-parts.sse":    {services.FinishStop, []part{thought("hm"), text("Hello")}},
		"reasoning.sse":           {services.FinishStop, []part{thought("hm"), text("Hello")}},
		"annotations.sse":         {services.FinishStop, []part{cited}},
		"keep-alives.sse":         {services.FinishStop, []part{text("Hello")}},
		"no-finish-reason.sse":    {services.FinishStop, []part{text("Hello")}},
		"whole.json":              {services.FinishStop, []part{text("Hello")}},
		"max-tokens.sse":          {services.FinishLength, []part{text("Hel")}},
		"model-length.sse":        {services.FinishLength, []part{text("Hel")}},
		"reason-in-capitals.sse":  {services.FinishLength, []part{text("Hel")}},
		"another-reason.sse":      {"eos", []part{text("Hello")}},
		"filtered.sse":            {services.FinishFiltered, nil},
		"failed-reason.sse":       {failed, []part{text("Hel")}},
		"out-of-resources.sse":    {failed, []part{text("Hel")}},
		"error-in-the-choice.sse": {failed, []part{text("Hel")}},
		"error-in-the-stream.sse": {failed, []part{text("Hel")}},
	} {
		answer, err := answerOf(t, name)
		if fault := faults[want.finish]; fault != nil {
			require.ErrorIs(t, err, fault, name)
		} else {
			require.NoError(t, err, name)
			require.Equal(t, want.finish, answer.Finish, name)
		}
		ids := map[string]bool{}
		require.Len(t, answer.Parts, len(want.parts), name)
		for i, p := range answer.Parts {
			if p.CallID != "" {
				require.False(t, ids[p.CallID], name)
				ids[p.CallID] = true
			}
			if want.parts[i].CallID == "minted" {
				require.Regexp(t, `^call_[0-9a-f]{32}$`, p.CallID, name)
				p.CallID = "minted"
			}
			if want.parts[i].Item != nil {
				require.JSONEq(t, string(want.parts[i].Item), string(p.Item), name)
				p.Item = want.parts[i].Item
			}
			require.Equal(t, want.parts[i], p, name)
		}
	}
	require.Len(t, must.Get(filepath.Glob("testdata/*"))(t), 30, "each file has its row")
}

// answerOf returns the answer of a model whose endpoint sends a file.
func answerOf(t *testing.T, name string) (services.ModelAnswer, error) {
	t.Helper()
	raw := must.Get(os.ReadFile(filepath.Join("testdata", name)))(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		if strings.HasSuffix(name, ".json") {
			w.Header().Set("Content-Type", "application/json")
		}
		_, _ = w.Write(raw)
	}))
	defer server.Close()
	p := services.Prompt{Messages: []json.RawMessage{json.RawMessage(`{"role":"user","content":"q"}`)}}
	m := openai.New(endpoint.Config{URL: server.URL + "/v1", Name: "m"})
	return m.Answer(t.Context(), p, func(services.AnswerPiece) {})
}
