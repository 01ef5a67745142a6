package conversation_test

import (
	"fmt"
	"testing"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// BenchmarkExtensions folds a turn that is extended so many times by a message of 200 bytes. What a fold with texts
// copies grows with the square of that, since each state of the turn is a JSON array of its own.
func BenchmarkExtensions(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		for name, rules := range map[string]conversation.Rules{"texts": {}, "slim": {Slim: true}} {
			b.Run(fmt.Sprint(n, " ", name), func(b *testing.B) {
				w := newWorld("s", conversation.Rules{Slim: true})
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
					s := conversation.New("s", rules)
					for _, e := range w.log {
						s.Fold(e)
					}
				}
			})
		}
	}
}
