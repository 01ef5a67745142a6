package systemtest_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// assistants are the example's files of the Assistants API, and boilers the id of its longer thread.
const (
	assistants = "../../../docs/examples/assistants/*"
	boilers    = "thread_7pLzTb1dLxWq3kVn8sYcRf2G"
	parcel     = "thread_3xQdGm9rKp5vTn0hLw8bZs4C"
)

// members returns a member of each item.
func members(all []any, name string) (out []any) {
	for _, i := range all {
		out = append(out, i.(map[string]any)[name])
	}
	return out
}

// importAssistants imports threads of the Assistants API, which are conversations here: the messages keep their ids,
// their order and all that they say, in the form of the official document, and a response goes on with them. A second
// import changes nothing, whatever the order of the files.
func importAssistants(t *testing.T, p *stack.Process) {
	t.Helper()
	files, err := filepath.Glob(assistants)
	require.NoError(t, err)
	out := p.Done(t, append([]string{"import", "--from", "assistants"}, files...)...)
	require.Contains(t, out, "2 conversations with 5 turns: 5 turns recorded")

	target, err := url.Parse(p.URL)
	require.NoError(t, err)
	document := openaitest.Read(t, os.Getenv(openaitest.Variable))
	server := httptest.NewServer(document.Holding(httputil.NewSingleHostReverseProxy(target)))
	t.Cleanup(server.Close)
	official := stack.NewCaller(server.URL, true)
	require.Equal(t, map[string]any{"customer": "4711"}, official.Get(t, "/v1/conversations/"+boilers)["metadata"])
	all := itemsOf(t, official, boilers)
	require.Equal(t, []any{"msg_a1Zk9", "msg_b2Yj8", "msg_c3Xi7", "msg_d4Wh6", "msg_e5Vg5", "msg_f6Uf4", "msg_g7Te3"},
		members(all, "id"))
	require.Equal(t, []any{"user", "assistant", "user", "user", "assistant", "user", "assistant"}, members(all, "role"))
	cites := map[string]any{
		"type": "file_citation", "text": "【4:0†boilers.pdf】", "start_index": 31.0, "end_index": 49.0,
		"file_id": "file-Hb7bLmQ2", "index": 31.0, "filename": "",
	}
	require.Equal(t, []any{map[string]any{
		"type": "output_text", "text": "Two of them: the B20 and the B35【4:0†boilers.pdf】.",
		"annotations": []any{cites}, "logprobs": []any{},
	}}, members(all, "content")[1])
	label := map[string]any{"type": "input_image", "file_id": "file-9QzLabel", "detail": "auto", "image_url": nil}
	require.Equal(t, label, members(all, "content")[2].([]any)[1])
	require.Equal(t, map[string]any{"channel": "web"}, members(all, "metadata")[5])
	require.Equal(t, []any{"completed", "completed", "incomplete", "completed"},
		members(itemsOf(t, official, parcel), "status"))
	out = p.Done(t, "replay", "--type", "turnledger.session.described.v1")
	require.Equal(t, 2, strings.Count(out, `"kind":"conversation"`), out)

	position := func() any { return p.Get(t, stack.SessionPath(boilers))["position"] }
	before := position()
	slices.Reverse(files)
	out = p.Done(t, append([]string{"import", "--from", "assistants"}, files...)...)
	require.Contains(t, out, "0 turns recorded, 5 were there already")
	require.Equal(t, before, position(), "the second import wrote to the log")

	answer := p.Must(t, http.StatusOK, http.MethodPost, "/v1/responses",
		map[string]any{"conversation": boilers, "input": "And the price?"})
	require.Equal(t, "completed", answer["status"])
	require.Len(t, itemsOf(t, official, boilers), 9)
	require.Len(t, p.Context(t, boilers), 9)
}
