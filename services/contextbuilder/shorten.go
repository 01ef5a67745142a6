package contextbuilder

import (
	"fmt"
	"slices"

	"github.com/turnledger/turnledger/events/message"
)

// shortest is the length, in bytes, to which results of tools are cut at most.
const shortest = 200

// fit cuts results of tools until a history fits into its budget of tokens, which turns that are always taken may
// exceed. It may change the slice. The warning says what was cut, or that the history is too long all the same.
func fit(history []message.Message, b budget) (warning string) {
	if b.tokens <= 0 || tokensOf(history, b.count) <= b.tokens {
		return ""
	}
	longest := 0
	for _, m := range history {
		longest = max(longest, m.LongestResult())
	}
	whole := slices.Clone(history)
	for longest > shortest {
		longest = max(longest/2, shortest)
		for i, m := range whole {
			history[i] = m.ShortenResults(longest)
		}
		if tokensOf(history, b.count) <= b.tokens {
			return fmt.Sprintf("history: results of tools are shortened to %d bytes, to fit into max_tokens", longest)
		}
	}
	return "history: it is longer than max_tokens, since the last answered turn always stays"
}
