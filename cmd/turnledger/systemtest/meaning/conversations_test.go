package meaning_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/index/embeddings/embeddingstest"
	"github.com/turnledger/turnledger/projections/index/weaviate/weaviatetest"
)

// Each conversation is found by its longest question, in the long form by each of its questions: in the first ten of a
// hybrid search and, less its last tenth, of the similar turns. Where more than ten turns ask the same, one of these is
// enough. In the long form one in a thousand may be missing among the similar turns: more than ten others are nearer.
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
	t.Logf("Weaviate: %d MB of files, %d MB of memory", w.Disk()>>20, w.Memory()>>20)
	asked, missed := 0, 0
	began = time.Now()
	for _, c := range conversations {
		for _, question := range askedOf(t, c) {
			asked++
			page := p.Must(t, http.StatusOK, http.MethodPost, "/v1/search",
				body{"query": question, "mode": "hybrid", "in": "question"})
			assert.True(t, isFound(page, c.ID, question), "hybrid: %s %q: %v", c.ID, question, page)
			page = p.Must(t, http.StatusOK, http.MethodPost, "/v1/similar",
				body{"question": nearly(question), "limit": 10})
			if isFound(page, c.ID, question) {
				continue
			}
			missed++
			t.Logf("similar misses: %s %q", c.ID, question)
		}
	}
	if stack.Long() {
		assert.Less(t, missed*1000, asked, "similar misses one in a thousand")
	} else {
		assert.Zero(t, missed, "similar misses")
	}
	t.Log(asked, "questions,", time.Since(began)/time.Duration(asked), "for both searches of one")
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
		if h.(body)["session_id"] == session || snippet != "" && asksTheSame(snippet, asked) {
			return true
		}
	}
	return false
}

// asksTheSame reports whether a snippet, which a long text is cut for, has the words of a question.
func asksTheSame(snippet, asked string) bool {
	const longest = 200
	words := func(text string) string {
		return strings.Join(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r)
		}), " ")
	}
	if utf8.RuneCountInString(snippet) == longest {
		return strings.HasPrefix(words(asked), words(snippet))
	}
	return words(asked) == words(snippet)
}

// nearly returns a question without its last tenth.
func nearly(question string) string {
	of := []rune(question)
	return string(of[:len(of)-len(of)/10])
}

// askedOf returns the longest answered question of a conversation, in the long form all of them; those with text.
func askedOf(t *testing.T, c stack.Conversation) (asked []string) {
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
			before = strings.TrimPrefix(before+"\n"+text, "\n") // an import makes one question of them
		case message.Role == "assistant" && strings.TrimSpace(before) != "" && text != "":
			asked, before = append(asked, before), ""
		}
	}
	if len(asked) == 0 || stack.Long() {
		return asked
	}
	return []string{slices.MaxFunc(asked, func(a, b string) int { return cmp.Compare(len(a), len(b)) })}
}
