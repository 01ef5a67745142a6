package conversation_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// pruneOf reads "prune TURN ID drop=WORD,WORD keep=WORD": messages go that hold one of the words. A message that holds
// the word of keep gets an id.
func (r *runner) pruneOf(a args) conversation.Prune {
	return conversation.Prune{SessionID: r.session, TurnID: r.turn(a.word(1)), PruneID: a.word(2),
		Keep: func(m conversation.Message) json.RawMessage {
			holds := func(word string) bool { return strings.Contains(string(m.Raw), word) }
			switch {
			case a.values["drop"] != "" && slices.ContainsFunc(strings.Split(a.values["drop"], ","), holds):
				return nil
			case a.values["keep"] != "" && holds(a.values["keep"]):
				item := fmt.Sprintf(`,"item":{"id":"%s:%d:%d"}}`, m.Half, m.Seq, m.Index)
				return append(m.Raw[:len(m.Raw)-1:len(m.Raw)-1], item...)
			}
			return m.Raw
		}}
}

// prune decides a prune on a state, with the texts that the log has.
func (w *world) prune(s *conversation.State, c conversation.Prune) (conversation.Decision, error) {
	c, err := conversation.NormalPrune(c)
	if err != nil {
		return conversation.Decision{}, err
	}
	if d, ok := s.PruneRefused(c); ok {
		return d, nil
	}
	old := w.at(s.Applied).Turn(c.TurnID)
	return s.DecidePrune(c, old, conversation.Messages(old, w.brought(s, c))), nil
}

// brought returns the events that brought the texts of a turn, as far as the state has seen them.
func (w *world) brought(s *conversation.State, c conversation.Prune) (brought []events.Recorded) {
	seqs := s.Turn(c.TurnID).Sources()
	for _, e := range w.log {
		if slices.Contains(seqs, e.Position.Seq) {
			brought = append(brought, e)
		}
	}
	return brought
}

// prunedOf reads "pruned TURN ID q=TEXT a=TEXT stones=…": the fact that a prune of the turn would state now, with
// other texts or tombstones.
func (r *runner) prunedOf(a args) (events.Fact, error) {
	f := &events.TurnPruned{TurnID: r.turn(a.word(1)), SessionID: r.session, PruneID: a.word(2),
		Question: questionOf(a), Answer: answerOf(a),
		Session: &events.SessionMark{CreatedAt: epoch, LastActiveAt: epoch}}
	if raw := a.values["stones"]; raw != "" {
		return f, json.Unmarshal([]byte(r.fill(raw)), &f.Tombstones)
	}
	t := r.live.Turn(f.TurnID)
	if t == nil {
		return f, nil
	}
	chain := r.live.Chain(t)
	f.Tombstones = r.live.Tombstones(chain, 0)
	for _, x := range chain[len(chain)-1].Extensions() {
		f.Parts = append(f.Parts, events.Part{ID: x.ID, Half: x.Half})
	}
	return f, nil
}

// decided is the reason of prunes that were decided; a foreign one has none.
const decided = "decided"

// anyPrune draws a prune that takes out the messages of some numbers, or those of a word.
func (m *machine) anyPrune(t *rapid.T, id uuid.UUID) conversation.Prune {
	number, word := rapid.IntRange(0, 3).Draw(t, "number"), wordings.Draw(t, "word")
	return conversation.Prune{SessionID: m.session, TurnID: id, Reason: decided,
		PruneID: rapid.SampledFrom([]string{"p1", "p2", "p3"}).Draw(t, "prune"),
		Keep: func(x conversation.Message) json.RawMessage {
			if x.Index == number || strings.Contains(string(x.Raw), word) && number > 1 {
				return nil
			}
			return x.Raw
		}}
}

// rawPrune draws a prune with tombstones of the turn, or of another one, as the log has them, or had them before.
func (m *machine) rawPrune(t *rapid.T, id uuid.UUID, words string) events.Fact {
	f := &events.TurnPruned{TurnID: id, SessionID: m.session, Question: events.Question{QuestionNeutral: words},
		PruneID: rapid.SampledFrom([]string{"p1", "p2", "p9"}).Draw(t, "raw prune"),
		Session: &events.SessionMark{CreatedAt: epoch, LastActiveAt: epoch}}
	s := m.at(rapid.Uint64Range(0, m.head).Draw(t, "tombstones at"))
	of := s.Turn(id)
	if of == nil {
		of = s.Turn(m.turn(requests.Draw(t, "tombstones of")))
	}
	if of == nil {
		return f
	}
	chain := s.Chain(of)
	f.Tombstones = s.Tombstones(chain, 0)
	for _, x := range chain[len(chain)-1].Extensions() {
		f.Parts = append(f.Parts, events.Part{ID: x.ID, Half: x.Half})
	}
	if !f.Pending() {
		f.AnswerNeutral = words
	}
	return f
}

// The texts of a half that was pruned are those of its messages: the user's with an empty line between them, and the
// assistant's last one. Messages without a change stay byte for byte, and a half without a change keeps its texts.
//
//conformance:o31
func TestTextsOfAPrunedTurn(t *testing.T) {
	t.Parallel()
	w := newWorld("s", conversation.Rules{})
	id := w.turn("r1")
	w.append(&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r1", Question: events.Question{
		QuestionNeutral: "first", QuestionTranslated: "erst", TranslateChat: true, PipelineName: "p",
		QuestionMessages: json.RawMessage(`[ {"role":"user","content":"one","n":1.50}, ` +
			`{"role":"system","content":"sys"},{"role":"user","content":[{"type":"text","text":"two"},` +
			`{"type":"image_url"},{"type":"text","text":"three"}]},` +
			`{"role":"user","content":"GOES"}]`)}})
	w.append(&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: "said",
		AnswerTranslated: "said", AnswerTranslatedIsFallback: true}})
	prune := func(id string, word string) *conversation.Turn {
		c := conversation.Prune{SessionID: "s", TurnID: w.turn("r1"), PruneID: id,
			Keep: func(m conversation.Message) json.RawMessage {
				if strings.Contains(string(m.Raw), word) {
					return nil
				}
				return m.Raw
			}}
		d := must.Get(w.prune(w.live, c))(t)
		require.Len(t, d.Facts, 1)
		require.Equal(t, conversation.Pruned, w.append(d.Facts[0]).Kind)
		return w.live.Turn(c.TurnID)
	}
	left := prune("p1", "GOES")
	require.Equal(t, "one\n\ntwo\n\nthree", left.Question.QuestionNeutral)
	require.Empty(t, left.Question.QuestionTranslated)
	require.Equal(t, "p", left.Question.PipelineName)
	require.Equal(t, `[{"role":"user","content":"one","n":1.50},{"role":"system","content":"sys"},`+
		`{"role":"user","content":[{"type":"text","text":"two"},{"type":"image_url"},{"type":"text","text":"three"}]}]`,
		string(left.Question.QuestionMessages))
	require.Equal(t, events.Answer{AnswerNeutral: "said", AnswerTranslated: "said", AnswerTranslatedIsFallback: true},
		*left.Answer)
	w.append(&events.TurnExtended{TurnID: id, SessionID: "s", ExtensionID: "e", Extension: events.Extension{
		Half: events.HalfAnswer, AnswerNeutral: "last", Messages: json.RawMessage(
			`[{"role":"assistant","content":"said too"},{"role":"tool","content":"x"},` +
				`{"role":"assistant","content":"last"}]`),
	}})
	left = prune("p2", `"last"`)
	require.Equal(t, "said too", left.Answer.AnswerNeutral)
	require.Equal(t, "said too", left.Answer.AnswerTranslated)
	left = prune("p3", "assistant")
	require.Empty(t, left.Answer.AnswerNeutral)
	require.Empty(t, left.Answer.AnswerTranslated)
	require.False(t, left.Answer.AnswerTranslatedIsFallback)
	left = prune("p4", "tool")
	require.Equal(t, events.Answer{}, *left.Answer)
	require.Equal(t, conversation.Finalized, left.Status)
}
