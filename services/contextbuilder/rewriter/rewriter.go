// Package rewriter asks a model for a query that can be understood without the conversation before it.
package rewriter

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
	"github.com/turnledger/turnledger/services/contextbuilder"
)

// PromptVersion names the prompt's file. A changed prompt is a new file.
const PromptVersion = "v1"

//go:embed prompts/v1.txt
var prompt string

// Config of a Rewriter.
type Config struct {
	Model services.Model
	// Timeout of a rewrite, 5 s by default. After it the original message is used alone.
	Timeout time.Duration
}

// Rewriter implements contextbuilder.Rewriter.
type Rewriter struct{ cfg Config }

var _ contextbuilder.Rewriter = (*Rewriter)(nil)

// New makes a rewriter; it does no I/O.
func New(cfg Config) *Rewriter {
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	return &Rewriter{cfg}
}

// longest bounds a query: twice the message's characters plus this many. A model that writes more has answered the
// message instead of rewriting it.
const longest = 2000

// Rewrite implements contextbuilder.Rewriter. The model sees the message, the previous turns and the memory. Rewrite
// returns within the timeout.
func (r *Rewriter) Rewrite(ctx context.Context, message string, history []message.Message,
	memorySnippet string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	given := material(message, history, memorySnippet)
	query, err := services.Write(ctx, r.cfg.Model, prompt, given, 2*utf8.RuneCountInString(message)+longest)
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
