package contextbuilder

import (
	"fmt"
	"slices"

	"github.com/turnledger/turnledger/events/message"
)

// leastResult is the length, in bytes, to which results of tools are cut at most.
const leastResult = 200

// fit cuts results of tools until a history fits into its budget of tokens, which its newest turn alone may exceed. It
// may change the slice. The warning says what was cut, or that the history is too long all the same.
func fit(history []message.Message, b budget) (warning string) {
	most := 0
	for _, m := range history {
		most = max(most, m.LongestResult())
	}
	if b.tokens <= 0 || most <= leastResult || tokensOf(history, b.count) <= b.tokens {
		return ""
	}
	whole := slices.Clone(history)
	for most > leastResult {
		most = max(most/2, leastResult)
		for i, m := range whole {
			history[i] = m.ShortenResults(most)
		}
		if tokensOf(history, b.count) <= b.tokens {
			return fmt.Sprintf("history: results of tools are shortened to %d bytes, to fit into max_tokens", most)
		}
	}
	return "history: the newest turn alone is longer than max_tokens"
}
