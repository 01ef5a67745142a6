package contextbuilder

import (
	"cmp"
	"context"
	_ "embed" // the prompt
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

//go:embed prompts/v1.txt
var rewriting string

// ModelRewriter has a model write a query that can be understood without the conversation before it.
type ModelRewriter struct {
	Model services.Model
	// Timeout of a rewrite, 5 s by default. After it the original message is used alone.
	Timeout time.Duration
}

var _ Rewriter = ModelRewriter{}

// longestQuery bounds a query: twice the message's characters plus this many. A model that writes more has answered the
// message instead of rewriting it.
const longestQuery = 2000

// Rewrite implements Rewriter. The model sees the message, the previous turns and the memory. Rewrite
// returns within the timeout.
func (r ModelRewriter) Rewrite(ctx context.Context, message string, history []message.Message,
	memorySnippet string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Timeout, 5*time.Second))
	defer cancel()
	given := material(message, history, memorySnippet)
	query, err := services.Write(ctx, r.Model, rewriting, given, 2*utf8.RuneCountInString(message)+longestQuery)
	if err != nil {
		return "", fmt.Errorf("rewrite a query: %w", err)
	}
	return query, nil
}

// material returns the text from which the model makes the query.
func material(message string, history []message.Message, memorySnippet string) string {
	var b strings.Builder
	b.WriteString("Conversation so far:\n")
	if len(history) == 0 {
		b.WriteString("(none)\n")
	}
	for _, m := range history {
		if text := m.Words(); text != "" {
			fmt.Fprintf(&b, "%s: %s\n", m.Role(), text)
		}
	}
	if memorySnippet != "" {
		b.WriteString("\nKnown from earlier conversations:\n" + memorySnippet + "\n")
	}
	b.WriteString("\nMessage to rewrite:\n" + message)
	return b.String()
}
