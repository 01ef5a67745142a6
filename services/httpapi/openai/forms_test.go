package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
)

// OpenAI's document has two forms of some types: what a client may send as null is left out of what is shown.
func TestItemsAreShownInTheirOtherForm(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin()
	for sent, shown := range map[string]string{
		`{"type":"function_call_output","call_id":null,"name":"f","namespace":null,"output":"o"}`: `{
			"type":"function_call_output","name":"f","output":"o","status":"completed"}`,
		`{"type":"function_call_output","call_id":"c","name":null,"namespace":"n","output":"o"}`: `{
			"type":"function_call_output","call_id":"c","namespace":"n","output":"o","status":"completed"}`,
		`{"type":"computer_call_output","call_id":"c","acknowledged_safety_checks":null,
			"output":{"type":"computer_screenshot","file_id":"f"},"status":"completed"}`: `{
			"type":"computer_call_output","call_id":"c",
			"output":{"type":"computer_screenshot","file_id":"f"},"status":"completed"}`,
	} {
		got := s.post(id, sent)[0].(map[string]any)
		require.Equal(t, got, s.must("GET", "/v1/conversations/"+id+"/items/"+got["id"].(string), ""))
		delete(got, "id")
		raw, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, shown, string(raw))
	}
}

// An output may name its tool in place of a call. Then it answers no call, and only a model that speaks Responses has a
// form for it.
func TestAnOutputWithoutACallReachesTheModelThatHasAFormForIt(t *testing.T) {
	t.Parallel()
	for vendor := range vendors {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			m, s := behind(t, vendor, func([]string) modeltest.Answer { return modeltest.Answer{Text: "yes"} })
			output := `{"type":"function_call_output","name":"clock","output":"noon"}`
			id := s.begin(user("q"), output)
			s.must("POST", "/v1/responses", `{"input":[`+user("and?")+`,`+output+`],"conversation":"`+id+`"}`)
			sent := messagesIn(t, <-m.Bodies)
			told := 0
			for _, i := range sent {
				if item := i.(map[string]any); item["name"] == "clock" {
					require.Equal(t, "noon", item["output"])
					require.NotContains(t, item, "call_id")
					told++
				}
			}
			raw, err := json.Marshal(sent)
			require.NoError(t, err)
			want := map[string]int{"responses": 2}[vendor]
			require.Equal(t, want, told, "%s", raw)
			require.Equal(t, want, strings.Count(string(raw), "noon"), "%s", raw)
		})
	}
}
