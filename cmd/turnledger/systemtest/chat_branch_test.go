package systemtest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// editing is a chat with a thread of two answered turns.
type editing struct {
	*stack.Process
	model                 *stack.Model
	thread, first, second string
	// send sends a message, and returns what the last event or the body says.
	send func(t *testing.T, body map[string]any) map[string]any
	path string
}

// edit begins such a thread, whose messages are answered whole, or streamed.
func edit(t *testing.T, p *stack.Process, model *stack.Model, thread, suffix string) *editing {
	t.Helper()
	e := &editing{Process: p, model: model, thread: thread, path: "/v1/threads/" + thread + "/messages" + suffix}
	e.first = e.Ask(t, thread, stack.Content("Who is Donald Trump?"))["turn_id"].(string)
	e.second = e.Ask(t, thread, stack.Content("who are his children"))["turn_id"].(string)
	<-model.Asked
	<-model.Asked
	e.send = func(t *testing.T, body map[string]any) map[string]any {
		t.Helper()
		if suffix == "" {
			return e.Ask(t, thread, body)
		}
		var last [2]string
		for last = range stream(t.Context(), p, t, thread, body) {
		}
		require.Equal(t, "done", last[0], last[1])
		var out map[string]any
		require.NoError(t, json.Unmarshal([]byte(last[1]), &out))
		return out
	}
	return e
}

// An edited message, and one that is answered anew, are answered in branches of the thread, which stays as it was.
func answersInABranch(t *testing.T, e *editing) {
	t.Helper()
	before := e.Get(t, stack.SessionPath(e.thread)+"/turns?status=all")
	edit := map[string]any{"content": "who are his wives", "edits_turn_id": e.second, "request_id": "e"}
	edited := e.send(t, edit)
	require.Equal(t, []string{"user: Who is Donald Trump?", "assistant: Donald Trump is an American politician.",
		"user: who are his wives"}, <-e.model.Asked, "the edited turn is not in the prompt")
	again := map[string]any{"regenerates_turn_id": e.second, "request_id": "r"}
	anew := e.send(t, again)
	require.Equal(t, []string{"user: Who is Donald Trump?", "assistant: Donald Trump is an American politician.",
		"user: who are his children"}, <-e.model.Asked)
	require.NotEqual(t, edited["thread_id"], anew["thread_id"])

	for _, c := range []struct {
		body, answer map[string]any
		question     string
	}{{edit, edited, "who are his wives"}, {again, anew, "who are his children"}} {
		branch := c.answer["thread_id"].(string)
		require.NotEqual(t, e.thread, branch)
		repeated := e.send(t, c.body)
		for _, same := range []string{"thread_id", "turn_id", "content", "position"} {
			require.Equal(t, c.answer[same], repeated[same], same)
		}
		require.Equal(t, true, repeated["duplicate"])
		require.Equal(t, map[string]any{"session_id": e.thread, "turn_id": e.first},
			e.Get(t, stack.SessionPath(branch))["forked_from"])
		turns := e.Get(t, stack.SessionPath(branch)+"/turns")["turns"].([]any)
		require.Len(t, turns, 2)
		last := turns[1].(map[string]any)
		require.Equal(t, []any{branch, c.answer["turn_id"], c.question, c.answer["content"], false},
			[]any{last["session_id"], last["turn_id"], last["question_neutral"], last["answer_neutral"],
				last["inherited"]})
	}
	require.Empty(t, e.model.Asked, "a repeated message does not ask the model")
	require.Equal(t, before, e.Get(t, stack.SessionPath(e.thread)+"/turns?status=all"), "the thread is as it was")

	// Sent again after the turn was redacted, a message still has the answer of its branch; a new one is refused.
	e.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath(e.thread)+"/turns/"+e.second+"/redact", nil)
	for _, c := range []struct{ body, answer map[string]any }{{edit, edited}, {again, anew}} {
		require.Equal(t, c.answer["content"], e.send(t, c.body)["content"])
	}
	late := map[string]any{"regenerates_turn_id": e.second, "request_id": "late"}
	require.Equal(t, "turn_redacted", e.Must(t, http.StatusConflict, http.MethodPost, e.path, late)["code"])
	require.Empty(t, e.model.Asked)

	// A branch is a thread like any other, also for an edit of a turn that it shares.
	e.Ask(t, edited["thread_id"].(string), stack.Content("and then?"))
	require.Len(t, <-e.model.Asked, 5)
	deeper := e.Ask(t, edited["thread_id"].(string), map[string]any{"content": "Who?", "edits_turn_id": e.first})
	require.Equal(t, []string{"user: Who?"}, <-e.model.Asked)
	require.NotEqual(t, edited["thread_id"], deeper["thread_id"])
}

// A message that is refused leaves nothing in the log.
func refusedMessagesLeaveNothing(t *testing.T, e *editing) {
	t.Helper()
	gone := e.first
	e.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath(e.thread)+"/turns/"+gone+"/redact", nil)
	image := e.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(e.thread)+"/turns", map[string]any{
		"request_id": "image", "answer_neutral": "A cat.", "question_messages": []any{map[string]any{"role": "user",
			"content": []any{map[string]any{"type": "image_url", "image_url": map[string]any{
				"url": "https://example.com/cat.png"}}}}}})["turn_id"]
	end := e.head(t)
	unknown := "00000000-0000-5000-8000-000000000001"
	for name, c := range map[string]struct {
		body   map[string]any
		status int
		code   string
	}{
		"both": {map[string]any{"edits_turn_id": e.second, "regenerates_turn_id": e.second}, 422,
			"invalid_argument"},
		"a question without text": {map[string]any{"regenerates_turn_id": image, "content": ""}, 422,
			"invalid_argument"},
		"content of two": {map[string]any{"regenerates_turn_id": e.second}, 422, "invalid_argument"},
		"no content":     {map[string]any{"edits_turn_id": e.second, "content": ""}, 422, "invalid_argument"},
		"a bad window":   {map[string]any{"edits_turn_id": e.second, "max_messages": 1}, 422, "invalid_argument"},
		"a bad window of one asked anew": {map[string]any{"regenerates_turn_id": e.second, "content": "",
			"max_messages": 1}, 422, "invalid_argument"},
		"a bad silence": {map[string]any{"edits_turn_id": e.second, "idle_timeout": "-1s"}, 422,
			"invalid_argument"},
		"a bad policy": {map[string]any{"edits_turn_id": e.second, "on_pending": "x"}, 422, "invalid_argument"},
		"redacted":     {map[string]any{"edits_turn_id": gone}, 409, "turn_redacted"},
		"redacted and asked anew": {map[string]any{"regenerates_turn_id": gone, "content": ""}, 409,
			"turn_redacted"},
		"unknown": {map[string]any{"edits_turn_id": unknown}, 404, "turn_not_found"},
		"unknown and asked anew": {map[string]any{"regenerates_turn_id": unknown, "content": ""}, 404,
			"turn_not_found"},
		"the system": {map[string]any{"edits_turn_id": e.second, "user_id": "system"}, 422,
			"invalid_argument"},
		"no edit, and a bad window":   {map[string]any{"max_messages": 1}, 422, "invalid_argument"},
		"no edit, and a bad bound":    {map[string]any{"max_tokens": -1}, 422, "invalid_argument"},
		"no edit, and a bad language": {map[string]any{"language": "both"}, 422, "invalid_argument"},
		"no edit, and a bad policy":   {map[string]any{"on_pending": "maybe"}, 422, "invalid_argument"},
		"no edit, and a bad silence":  {map[string]any{"idle_timeout": "soon"}, 422, "invalid_argument"},
		"no edit, and a bad user":     {map[string]any{"user_id": ".."}, 422, "invalid_argument"},
		"a member that there is not":  {map[string]any{"bogus": true}, 422, "invalid_argument"},
	} {
		body := map[string]any{"content": "c", "request_id": name}
		maps.Copy(body, c.body)
		if body["content"] == "" {
			delete(body, "content")
		}
		require.Equal(t, c.code, e.Must(t, c.status, http.MethodPost, e.path, body)["code"], name)
		require.Equal(t, end, e.head(t), "%s: something was recorded", name)
	}
	require.Empty(t, e.model.Asked)
}

// head returns how far the log is.
func (e *editing) head(t *testing.T) (all []any) {
	t.Helper()
	for _, p := range e.Get(t, "/v1/projections")["projections"].([]any) {
		all = append(all, p.(map[string]any)["head"])
	}
	require.NotEmpty(t, all)
	return all
}

// Who may not speak in a thread leaves no branch of it, only the attempt; nor does an identity that is gone.
func editsByOthersLeaveNoBranch(t *testing.T, e *editing) {
	t.Helper()
	refused := func(user, request string, status int, code string) {
		for _, body := range []map[string]any{
			{"content": "c", "edits_turn_id": e.second}, {"regenerates_turn_id": e.second},
		} {
			body["user_id"], body["request_id"] = user, request
			require.Equal(t, code, e.Must(t, status, http.MethodPost, e.path, body)["code"])
		}
		branch := e.Get(t, stack.SessionPath(events.BranchID(e.thread, request)))
		require.Equal(t, false, branch["found"], "%s: a branch was made", code)
	}
	e.Must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/eve", nil)
	refused("eve", "of eve", http.StatusGone, "session_erased")
	require.Nil(t, e.Get(t, stack.SessionPath(e.thread))["identity_id"])

	e.Must(t, http.StatusOK, http.MethodPut, stack.SessionPath(e.thread)+"/identity",
		map[string]any{"identity_id": "ada"})
	refused("bob", "of bob", http.StatusConflict, "session_linked_elsewhere")
	_, log, _ := e.Run(t, "replay", "--session", e.thread)
	require.Contains(t, log, events.TypeLinkRefused, "the attempt is kept")
	require.Empty(t, e.model.Asked)

	mine := e.send(t, map[string]any{"content": "c", "edits_turn_id": e.second, "user_id": "ada"})
	<-e.model.Asked
	require.Equal(t, "ada", e.Get(t, stack.SessionPath(mine["thread_id"].(string)))["identity_id"])
}
