package responses

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/model/endpoint"
)

// TestItemsThatAnEndpointRefusesAreLeftOut: a client may have sent items of a type that the endpoint does not know, or
// that another one sealed. It is asked again without them, and the conversation goes on.
func TestItemsThatAnEndpointRefusesAreLeftOut(t *testing.T) {
	t.Parallel()
	server := modeltest.New(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "yes"} })
	server.Demand = func(body json.RawMessage) string {
		if strings.Contains(string(body), "tomorrow") {
			return "an item of an unknown type"
		}
		return ""
	}
	m := New(endpoint.Config{URL: server.URL + "/v1", Name: "m"})
	ask := func(last string) (services.ModelAnswer, error) {
		return m.Answer(context.WithoutCancel(t.Context()), services.Prompt{Messages: []json.RawMessage{
			json.RawMessage(`{"role":"user","content":"q"}`),
			json.RawMessage(`{"role":"assistant","content":null,"item":{"type":"tomorrow"}}`),
			json.RawMessage(`{"role":"user","content":"` + last + `"}`),
		}}, func(services.AnswerPiece) {})
	}
	answer, err := ask("now")
	require.NoError(t, err)
	require.Equal(t, "yes", answer.Text())
	require.Len(t, server.Refused(), 1)
	_, err = ask("what is tomorrow?")
	require.Error(t, err)
	require.Len(t, server.Refused(), 3)
}
