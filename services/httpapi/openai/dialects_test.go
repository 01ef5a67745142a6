package openai_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/model/endpoint"
	chatopenai "github.com/turnledger/turnledger/services/model/openai"
)

var update = flag.Bool("update", false, "write testdata/dialects anew")

// minted are ids of ours.
var minted = regexp.MustCompile(`call_[0-9a-f]{32}`)

// What is recorded of each dialect that the client of chat models reads (its TestDialects), and what goes back to the
// server when the client of the API answers: the outputs of all calls, or a question.
func TestDialectsAreRecordedAndGoBack(t *testing.T) {
	t.Parallel()
	streams := must.Get(filepath.Glob("../../model/openai/testdata/*"))(t)
	require.Len(t, must.Get(filepath.Glob("testdata/dialects/*.txt"))(t), len(streams), "each has its file")
	for _, stream := range streams {
		name := strings.TrimSuffix(filepath.Base(stream), filepath.Ext(stream))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &dialect{raw: must.Get(os.ReadFile(stream))(t), whole: filepath.Ext(stream) == ".json"}
			at := httptest.NewServer(server)
			t.Cleanup(at.Close)
			s := start(t, answeredBy(chatopenai.New(endpoint.Config{URL: at.URL, Name: "m"})))
			id := s.begin()
			more := `,"conversation":"` + id + `"` + tool
			first := s.do("POST", "/v1/responses", `{"input":"q"`+more+`}`)
			require.NotContains(t, first.raw, "secret")
			input := []string{user("go on")}
			if calls := callsIn(first.body["output"]); len(calls) > 0 {
				input = input[:0]
				for n, call := range calls {
					input = append(input, result(call, fmt.Sprint("result ", n+1)))
				}
			}
			said := recorded(t, s, id)
			s.respondTo(input, more)

			all := fmt.Sprintf("status %d\n\nrecorded:\n%s\n\ngoes back:\n%s\n", first.status, said,
				lines(must.Get(json.Marshal(messagesIn(t, server.asked)))(t)))
			ids := map[string]string{}
			got := minted.ReplaceAllStringFunc(all, func(id string) string {
				if ids[id] == "" {
					ids[id] = fmt.Sprint("minted-", len(ids)+1)
				}
				return ids[id]
			})
			golden := filepath.Join("testdata", "dialects", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			require.Equal(t, string(must.Get(os.ReadFile(golden))(t)), got)
		})
	}
}

// dialect is an endpoint that first sends a file, and then answers with a word. asked is what it got last.
type dialect struct {
	raw, asked []byte
	whole      bool
}

func (d *dialect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.asked, _ = io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	if d.whole {
		w.Header().Set("Content-Type", "application/json")
	}
	_, _ = w.Write(d.raw)
	const done = `{"choices":[{"index":0,"delta":{"content":"Done."},"finish_reason":"stop"}]}`
	d.raw, d.whole = []byte("data: "+done+"\n\n"), false
}

func callsIn(output any) (ids []string) {
	items, _ := output.([]any) // an answer that failed has none
	for _, i := range items {
		if call, is := i.(map[string]any)["call_id"].(string); is {
			ids = append(ids, call)
		}
	}
	return ids
}

// recorded returns the messages of a session's answers as the log has them.
func recorded(t *testing.T, s *stack, session string) string {
	t.Helper()
	r, err := s.services.Reader.Read(t.Context(), services.Ask{SessionID: session, AllTurns: true, Own: true})
	require.NoError(t, err)
	var out []string
	for _, turn := range r.State.Turns {
		if turn.Answer == nil {
			out = append(out, "(no answer)")
			continue
		}
		out = append(out, lines(turn.Answer.AnswerMessages))
	}
	return strings.Join(out, "\n")
}

// lines returns a list of JSON objects, one a line, with sorted members and without the ids of items.
func lines(list json.RawMessage) string {
	var all []map[string]any
	_ = json.Unmarshal(list, &all)
	out := make([]string, len(all))
	for i, m := range all {
		delete(m, "item_ids")
		if item, is := m["item"].(map[string]any); is {
			delete(item, "id")
		}
		raw, _ := json.Marshal(m) // it was JSON
		out[i] = string(raw)
	}
	return strings.Join(out, "\n")
}
