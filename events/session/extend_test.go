package session_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
)

// A branch shares a turn as it was at the fork: what extended it before, also after the turn that the fork names, and
// nothing that extends it later.
func TestABranchSharesWhatExtendedATurnBeforeTheFork(t *testing.T) {
	t.Parallel()
	for _, answer := range []events.Answer{
		{AnswerNeutral: "a", AnswerTranslated: "A"},
		{AnswerNeutral: "a", AnswerMessages: []byte(`[ {"role":"tool"} ]`)},
		{AnswerNeutral: "a", AnswerMessages: []byte(`[]`)},
	} {
		w := newWorld("s", session.Rules{})
		for _, request := range []string{"r1", "r2"} {
			w.append(&events.TurnStarted{TurnID: w.turn(request), SessionID: "s", RequestID: request,
				Question: events.Question{QuestionNeutral: "q"}})
			w.append(&events.TurnFinalized{TurnID: w.turn(request), SessionID: "s", Answer: answer})
		}
		extend := func(request, id string) {
			w.append(&events.TurnExtended{TurnID: w.turn(request), SessionID: "s", ExtensionID: id,
				Extension: events.Extension{Half: events.HalfAnswer, AnswerNeutral: id,
					Messages: []byte(fmt.Sprintf(`[{"role":"x","content":%q}]`, id))},
				Metadata: []byte(fmt.Sprintf(`{"channel":%q}`, id))})
		}
		extend("r1", "before")
		w.append(&events.TurnCorrected{TurnID: w.turn("c2"), SessionID: "s", RequestID: "c2",
			ReplacesTurnID: w.turn("r2"), Question: events.Question{QuestionNeutral: "q"}, Answer: answer})
		extend("c2", "before")
		at := w.live.Clone()
		mark := must.Get(decide.ForkSession{SessionID: "s", RequestID: "f", ChildID: "child",
			TurnID: w.turn("c2")}.Mark(at.Clone(), session.Fork{}, events.Position{Seq: w.head}, w.clock))(t)
		require.EqualValues(t, 7, mark.Segments[0].Through.Seq)
		for n := range 3 {
			extend("r1", fmt.Sprint("later ", n))
			extend("c2", fmt.Sprint("later ", n))
		}
		for _, parent := range []*session.State{at, w.live} {
			before := parent.Clone()
			child := session.New("child", session.Rules{})
			head := child.Head()
			head.HeldDescription = head.ForkedBy(session.Fork{ForkedAt: 1, From: "s", Root: mark.Root})
			child.Adopt(head)
			child.Inherit(mark.Segments, []*session.State{parent}, math.MaxInt)
			require.Len(t, child.Turns, 3)
			for i, got := range child.Turns {
				require.Equal(t, at.Turns[i].Answer, got.Answer)
				require.Equal(t, string(at.Turns[i].Metadata()), string(got.Metadata()))
				require.Equal(t, at.Turns[i].Extensions(), got.Extensions())
			}
			require.Equal(t, before.Turns, parent.Turns, "the parent stays as it is")
		}
	}
}

// extended is a session of one turn whose answer is extended so often.
func extended(n int) *world {
	w := newWorld("s", session.Rules{Slim: true})
	id := w.turn("r")
	w.append(&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r",
		Question: events.Question{QuestionNeutral: "q"}})
	w.append(&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: "a"}})
	for i := range n {
		w.append(&events.TurnExtended{TurnID: id, SessionID: "s", ExtensionID: fmt.Sprint(i),
			Extension: events.Extension{Half: events.HalfAnswer, AnswerNeutral: fmt.Sprint("text ", i),
				Messages: fmt.Appendf(nil, `[{"role":"tool","content":"%0100d"}]`, i)}})
	}
	return w
}

// A copy of a state keeps its texts, however the state and the copy are extended further, and both say what a fold of
// the whole log says.
func TestACopyKeepsItsTexts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := extended(60)
		type copied struct {
			*session.State
			text string
		}
		var copies []copied
		keep := func(s *session.State) {
			copies = append(copies, copied{s, string(s.Turns[0].Answer.AnswerMessages)})
		}
		state := session.New("s", session.Rules{})
		for i, e := range w.log {
			state.Fold(e)
			for k := range copies {
				// Some of the copies go on by themselves, as a reader's does that reads the view's tail.
				if c := &copies[k]; c.Applied == e.Position.Seq-1 && r.IntN(2) == 0 {
					c.Fold(e)
					c.text = string(c.Turns[0].Answer.AnswerMessages)
				}
			}
			if i > 1 && r.IntN(3) == 0 {
				keep([]func() *session.State{state.Clone,
					func() *session.State { return state.CloneLast(1) }}[r.IntN(2)]())
			}
		}
		keep(state)
		require.Greater(t, len(copies), 10)
		for _, c := range copies {
			require.Equal(t, c.text, string(c.Turns[0].Answer.AnswerMessages), "seed %d at %d", seed, c.Applied)
			upTo := func(e events.Recorded) bool { return e.Position.Seq <= c.Applied }
			fresh := session.New("s", session.Rules{})
			for e := range slices.Values(w.log) {
				if upTo(e) {
					fresh.Fold(e)
					fresh = fresh.Clone() // so that each extension is made anew
				}
			}
			require.Equal(t, string(fresh.Turns[0].Answer.AnswerMessages), c.text)
			require.True(t, fresh.Same(c.State))
		}
	}
}

// What the extensions of a turn allocate grows as the texts do: with four times as many it would be 16 times as much if
// each copied those before it.
func TestExtensionsCopyOnlyWhatTheyBring(t *testing.T) {
	bytesOf := func(n int) float64 {
		w := extended(n)
		facts := make([]events.Fact, len(w.log))
		for i, e := range w.log {
			facts[i] = e.Fact
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		state := session.New("s", session.Rules{})
		for _, e := range w.log {
			state.Fold(e)
		}
		var filled session.Turn
		session.Rules{}.Fill(&filled, facts...)
		runtime.ReadMemStats(&after)
		require.JSONEq(t, string(state.Turns[0].Answer.AnswerMessages), string(filled.Answer.AnswerMessages))
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	few, many := bytesOf(500), bytesOf(2000)
	t.Logf("%.0f bytes for 500 extensions, %.0f for 2,000", few, many)
	require.Less(t, many/few, 6.0)
}

// An extension that comes again is known, however many came since, and a new one is known to be new.
func TestAnExtensionOfManyIsKnownAgain(t *testing.T) {
	t.Parallel()
	const many = 200
	w := extended(many)
	again := func(id string) decide.Decision {
		return decide.Extend{SessionID: "s", TurnID: w.turn("r"), ExtensionID: id,
			Extension: events.Extension{Half: events.HalfAnswer, Messages: []byte(`[{"role":"tool"}]`)}}.On(w.live)
	}
	for i := range many {
		require.Equal(t, decide.Decision{Turn: w.live.Turns[0], RestsOn: uint64(i) + 3}, again(fmt.Sprint(i)))
	}
	require.Len(t, again("another").Facts, 1)
}

// BenchmarkExtensions folds a turn that is extended so many times by a message of 200 bytes. What a fold with texts
// copies grows with the square of that, since each state of the turn is a JSON array of its own.
func BenchmarkExtensions(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		for name, rules := range map[string]session.Rules{"texts": {}, "slim": {Slim: true}} {
			b.Run(fmt.Sprint(n, " ", name), func(b *testing.B) {
				w := newWorld("s", session.Rules{Slim: true})
				id := w.turn("r")
				w.append(&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r",
					Question: events.Question{QuestionNeutral: "q"}})
				w.append(&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: "a"}})
				for i := range n {
					w.append(&events.TurnExtended{TurnID: id, SessionID: "s", ExtensionID: fmt.Sprint(i),
						Extension: events.Extension{Half: events.HalfAnswer,
							Messages: fmt.Appendf(nil, `[{"role":"tool","content":"%0200d"}]`, i)}})
				}
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					s := session.New("s", rules)
					for _, e := range w.log {
						s.Fold(e)
					}
				}
			})
		}
	}
}

// pruneOf reads "prune TURN ID drop=WORD,WORD keep=WORD": messages go that hold one of the words. A message that holds
// the word of keep gets an id.
func (r *runner) pruneOf(a args) decide.Prune {
	return decide.Prune{SessionID: r.session, TurnID: r.turn(a.word(1)), PruneID: a.word(2),
		Keep: func(m session.Message) json.RawMessage {
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
func (w *world) prune(s *session.State, c decide.Prune) (decide.Decision, error) {
	c, err := decide.NormalPrune(c)
	if err != nil {
		return decide.Decision{}, err
	}
	if d, ok := c.Refused(s); ok {
		return d, nil
	}
	old := w.at(s.Applied).Turn(c.TurnID)
	return c.On(s, old, session.Messages(old, w.brought(s, c))), nil
}

// brought returns the events that brought the texts of a turn, as far as the state has seen them.
func (w *world) brought(s *session.State, c decide.Prune) (brought []events.Recorded) {
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
func (m *machine) anyPrune(t *rapid.T, id uuid.UUID) decide.Prune {
	number, word := rapid.IntRange(0, 3).Draw(t, "number"), wordings.Draw(t, "word")
	return decide.Prune{SessionID: m.session, TurnID: id, Reason: decided,
		PruneID: rapid.SampledFrom([]string{"p1", "p2", "p3"}).Draw(t, "prune"),
		Keep: func(x session.Message) json.RawMessage {
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
	w := newWorld("s", session.Rules{})
	id := w.turn("r1")
	w.append(&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r1", Question: events.Question{
		QuestionNeutral: "first", QuestionTranslated: "erst", TranslateChat: true, PipelineName: "p",
		QuestionMessages: json.RawMessage(`[ {"role":"user","content":"one","n":1.50}, ` +
			`{"role":"system","content":"sys"},{"role":"user","content":[{"type":"text","text":"two"},` +
			`{"type":"image_url"},{"type":"text","text":"three"}]},` +
			`{"role":"user","content":"GOES"}]`)}})
	w.append(&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: "said",
		AnswerTranslated: "said", AnswerTranslatedIsFallback: true}})
	prune := func(id string, word string) *session.Turn {
		c := decide.Prune{SessionID: "s", TurnID: w.turn("r1"), PruneID: id,
			Keep: func(m session.Message) json.RawMessage {
				if strings.Contains(string(m.Raw), word) {
					return nil
				}
				return m.Raw
			}}
		d := must.Get(w.prune(w.live, c))(t)
		require.Len(t, d.Facts, 1)
		require.Equal(t, session.Pruned, w.append(d.Facts[0]).Kind)
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
	require.Equal(t, session.Finalized, left.Status)
}
