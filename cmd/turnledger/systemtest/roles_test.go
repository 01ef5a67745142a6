package systemtest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A process of one role answers each call as a process of all roles does, or says which role answers it.
func TestAProcessOfOneRoleAnswersOrNamesTheRole(t *testing.T) {
	t.Parallel()
	nats := stack.FreeAddress(t)
	model := stack.NewModel(t).Env()
	all := stack.Start(t, append(stack.ServeNATS(nats), model...), "serve", "--data-dir", stack.DataDir(t),
		"--roles", "api,context,eraser,chat")
	conversation := all.Must(t, http.StatusOK, http.MethodPost, "/v1/conversations",
		map[string]any{"items": talk()})["id"].(string)
	item := itemsOf(t, all, conversation)[1].(map[string]any)["id"].(string)
	session := stack.SessionPath(conversation)
	response := all.Must(t, http.StatusOK, http.MethodPost, "/v1/responses",
		map[string]any{"input": "hello", "conversation": conversation})["id"].(string)
	type call struct {
		method, path string
		body         any
	}
	get := func(path string) call { return call{http.MethodGet, path, nil} }
	post := func(path string, body map[string]any) call { return call{http.MethodPost, path, body} }
	items := "/v1/conversations/" + conversation
	calls := []call{
		get(items), get(items + "/items"), get(items + "/items?limit=1&order=asc"), get(items + "/items?after=" + item),
		get(items + "/items/" + item), get("/v1/models"),
		get("/v1/responses/" + response), get("/v1/responses/" + response + "/input_items"),
		get(session), get(session + "/turns"), get(session + "/history"),
		get(session + "/summaries"), get("/v1/projections"),
		post(session+"/context", map[string]any{"message": "now"}),
		post(items, map[string]any{"metadata": map[string]any{"k": "v"}}),
		post(items+"/items", map[string]any{"items": []any{map[string]any{"role": "user", "content": "more"}}}),
		post("/v1/responses/input_tokens", map[string]any{"input": "hello", "conversation": conversation}),
		post("/v1/responses", map[string]any{"input": "and more", "conversation": conversation}),
		post("/v1/threads/"+conversation+"/messages", map[string]any{"content": "and then"}),
		post(session+"/turns", map[string]any{"question_neutral": "q", "answer_neutral": "a", "request_id": "r"}),
	}
	for _, role := range []string{"api", "context", "chat"} {
		p := stack.Start(t, append(stack.JoinNATS(nats), model...), "serve", "--roles", role)
		answered := 0
		other := itemsOf(t, all, conversation)[3].(map[string]any)["id"].(string)
		for _, c := range append(calls, call{http.MethodDelete, items + "/items/" + other, nil}) {
			status, out := must.Two(p.Call(t.Context(), c.method, c.path, c.body))(t)
			if strings.Contains(fmt.Sprint(out), "has not the role") {
				continue
			}
			answered++
			assert.Less(t, status, 400, "%s: %s %s: %v", role, c.method, c.path, out)
		}
		require.Greater(t, answered, len(calls)/3, role)
		require.False(t, strings.Contains(p.Log.String(), "panic"), role)
	}
}
