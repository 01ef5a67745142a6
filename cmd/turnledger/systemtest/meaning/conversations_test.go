package meaning_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/index/embeddings/embeddingstest"
	"github.com/turnledger/turnledger/projections/index/weaviate/weaviatetest"
)

// Each conversation is found by one of its own questions, in the first ten of a hybrid search. Where more than ten
// turns ask the same, one of these is enough.
func TestConversationsAreFoundByTheirOwnQuestions(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	p := stack.Serve(t, environment(w, e, "TURNLEDGER_POSTGRES_URL="+pgtest.URL(t)), "--roles", everyRole)
	files := stack.ConversationFiles(t)
	conversations := stack.ReadConversations(t, files)
	for _, c := range conversations {
		p.LinkIdentity(t, c.ID, "everybody")
	}
	began := time.Now()
	code, out, errs := p.Run(t, append([]string{"import"}, files...)...)
	require.Equal(t, stack.ExitDone, code, out+errs)
	require.Eventually(t, func() bool { return !behind(t, p) }, 5*time.Minute, 100*time.Millisecond)
	t.Log(len(conversations), "conversations, index caught up after", time.Since(began), e.Texts(), "texts")
	t.Logf("Weaviate: %.0f MB of files, %d MB of memory", folderMB(t, w.Dir()),
		stack.MemoryOf(t, w.Pid(), "VmRSS")>>20)
	missed := 0
	began = time.Now()
	for _, c := range conversations {
		asked := longestQuestion(t, c)
		if asked == "" {
			continue
		}
		page := p.Must(t, http.StatusOK, http.MethodPost, "/v1/search",
			body{"query": asked, "mode": "hybrid", "in": "question"})
		if !isFound(page, c.ID, asked) {
			missed++
			t.Log("missed", c.ID)
		}
	}
	t.Log("hybrid:", time.Since(began)/time.Duration(len(conversations)), "a search")
	require.Zero(t, missed)
	code, out, errs = p.Run(t, "projections", "verify", "index")
	require.Equal(t, stack.ExitDone, code, out+errs)
}

// behind reports whether a view has not applied all of the log.
func behind(t testing.TB, p *stack.Process) bool {
	t.Helper()
	for _, v := range p.Get(t, "/v1/projections")["projections"].([]any) {
		if v.(body)["lag_events"] != 0.0 {
			return true
		}
	}
	return false
}

// isFound reports whether a page has a turn of a session, or of another that asks the same.
func isFound(page body, session, asked string) bool {
	for _, h := range page["hits"].([]any) {
		snippet := h.(body)["snippet"].(string)
		if h.(body)["session_id"] == session || snippet != "" && strings.HasPrefix(asked, snippet) {
			return true
		}
	}
	return false
}

// longestQuestion returns the longest answered question of a conversation, and "" if there is none with text.
func longestQuestion(t *testing.T, c stack.Conversation) (longest string) {
	t.Helper()
	var before string
	for _, m := range c.Messages {
		raw, err := json.Marshal(m)
		require.NoError(t, err)
		var message struct {
			Role    string
			Content any
		}
		require.NoError(t, json.Unmarshal(raw, &message))
		text, _ := message.Content.(string)
		switch {
		case message.Role == "user":
			before = text
		case message.Role == "assistant" && len(before) > len(longest) && text != "":
			longest, before = before, ""
		}
	}
	return longest
}
