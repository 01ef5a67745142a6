package weaviate_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/client/importer"
)

// Each turn with the longest question of a conversation, in the long form each turn, is found by its own question:
// it is in the first ten of a hybrid search. Where more than ten turns of the files ask the same, the ten are all
// of these. By its question less the last tenth it is among the ten similar turns, unless the vectors of ten
// others are as near.
func TestConversationsAreFoundByTheirOwnQuestions(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	p := stack.Serve(t, environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(t)), "--roles", everyRole)
	files := stack.ConversationFiles(t)
	conversations := stack.ReadConversations(t, files)
	for _, c := range conversations {
		p.LinkIdentity(t, c.ID, "everybody")
	}
	began := time.Now()
	code, out, errs := p.Run(t, append([]string{"import"}, files...)...)
	require.Equal(t, stack.ExitDone, code, out+errs)
	hang.Until(t, func() bool { return !behind(t, p) })
	t.Log(len(conversations), "conversations, index caught up after", time.Since(began), e.Texts(), "texts")
	t.Logf("Weaviate: %d MB of files, %d MB of memory", w.Disk()>>20, w.Memory()>>20)
	turns := importedTurns(t, conversations)
	same := turns.bySaying()
	asked, outdone, crowded := 0, 0, 0
	began = time.Now()
	for _, turn := range turns.asked() {
		asked++
		alike := same[saying(turn.question)]
		if len(alike) > firstHits {
			crowded++
		}
		page := p.Must(t, http.StatusOK, http.MethodPost, "/v1/search",
			body{"query": turn.question, "mode": "hybrid", "in": "question"})
		assert.True(t, isFound(page, turn.id, alike), "hybrid: %s %q: %v", turn.id, turn.question, page)
		page = p.Must(t, http.StatusOK, http.MethodPost, "/v1/similar",
			body{"question": nearly(turn.question), "limit": firstHits})
		if !isAmong(page, turn.id) {
			outdone++
			assert.GreaterOrEqual(t, turns.asNear(turn), firstHits, "similar: %s %q: %v", turn.id, turn.question, page)
		}
	}
	t.Log(asked, "questions,", crowded, "of them asked by more than ten turns;",
		outdone, "turns less near than ten others;", time.Since(began)/time.Duration(asked), "for both searches of one")
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

// firstHits is how many hits a turn has to be among.
const firstHits = 10

// isFound reports whether a page has a turn; where more say the same than a page holds, whether it has only these.
func isFound(page body, turn string, alike map[string]bool) bool {
	hits := page["hits"].([]any)
	if len(alike) > firstHits {
		return len(hits) == firstHits && !slices.ContainsFunc(hits, func(h any) bool {
			return !alike[h.(body)["turn_id"].(string)]
		})
	}
	return isAmong(page, turn)
}

// isAmong reports whether a turn is among the first hits of a page.
func isAmong(page body, turn string) bool {
	hits := page["hits"].([]any)
	return slices.ContainsFunc(hits[:min(len(hits), firstHits)], func(h any) bool {
		return h.(body)["turn_id"] == turn
	})
}

// nearly returns a question without its last tenth.
func nearly(question string) string {
	of := []rune(question)
	return string(of[:len(of)-len(of)/10])
}

// importedTurn is an answered turn of the files whose question has text.
type importedTurn struct{ id, session, question, translated string }

type importedTurnList []importedTurn

// importedTurns returns what an import records of conversations.
func importedTurns(t *testing.T, conversations []stack.Conversation) (out importedTurnList) {
	t.Helper()
	for _, c := range conversations {
		line, err := json.Marshal(c)
		require.NoError(t, err)
		session, turns, err := importer.Parse(line)
		require.NoError(t, err)
		for _, turn := range turns {
			if turn.Answer == nil || strings.TrimSpace(turn.QuestionNeutral) == "" {
				continue
			}
			id := events.TurnID(session, turn.RequestID).String()
			out = append(out, importedTurn{id, session, turn.QuestionNeutral, turn.QuestionTranslated})
		}
	}
	return out
}

// bySaying returns the ids of the turns by what they ask, in either language.
func (all importedTurnList) bySaying() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, turn := range all {
		for _, text := range []string{turn.question, turn.translated} {
			if out[saying(text)] == nil {
				out[saying(text)] = map[string]bool{}
			}
			out[saying(text)][turn.id] = true
		}
	}
	return out
}

// asNear returns how many other turns are as near to a turn's question less its last tenth as the turn itself.
func (all importedTurnList) asNear(turn importedTurn) (n int) {
	to := embeddingstest.Vector(nearly(turn.question), embeddingstest.Dimensions)
	own := turn.nearness(to)
	for _, other := range all {
		if other.id != turn.id && other.nearness(to) >= own-rounding {
			n++
		}
	}
	return n
}

// rounding is how much the cosine that Weaviate makes of a vector may differ.
const rounding = 1e-5

// nearness returns the cosine of a vector and that of the turn's question, in both languages.
func (turn importedTurn) nearness(to []float32) (cosine float64) {
	text := turn.question
	if turn.translated != "" && turn.translated != text {
		text += "\n" + turn.translated
	}
	for i, x := range embeddingstest.Vector(text, embeddingstest.Dimensions) {
		cosine += float64(x) * float64(to[i])
	}
	return cosine
}

// saying returns the words of a text, in lower case; the text itself if it has none.
func saying(text string) string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r)
	})
	if len(words) == 0 {
		return strings.TrimSpace(text)
	}
	return strings.Join(words, " ")
}

// asked returns the turn with the longest question of each conversation, in the long form all turns.
func (all importedTurnList) asked() (out importedTurnList) {
	if stack.Long() {
		return all
	}
	for _, turn := range all {
		last := len(out) - 1
		switch {
		case last < 0 || out[last].session != turn.session:
			out = append(out, turn)
		case len(turn.question) > len(out[last].question):
			out[last] = turn
		}
	}
	return out
}
