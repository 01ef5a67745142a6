// Package rewriter asks a model behind an OpenAI-compatible endpoint for a query that can be understood without the
// conversation before it.
package rewriter

import (
	"context"
	_ "embed" // the prompt
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services/contextbuilder"
)

// PromptVersion names the prompt's file. A changed prompt is a new file.
const PromptVersion = "v1"

//go:embed prompts/v1.txt
var prompt string

// Config of a Rewriter.
type Config struct {
	// URL of the API, including its version. Key may be empty.
	URL, Key, Model string
	// Timeout of a rewrite, 5 s by default. After it the original message is used alone.
	Timeout time.Duration
}

// Rewriter implements contextbuilder.Rewriter.
type Rewriter struct {
	cfg    Config
	client openai.Client
}

var _ contextbuilder.Rewriter = (*Rewriter)(nil)

// New makes a rewriter; it does no I/O.
func New(cfg Config) *Rewriter {
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	return &Rewriter{cfg: cfg, client: openai.NewClient(option.WithBaseURL(cfg.URL), option.WithAPIKey(cfg.Key),
		option.WithMaxRetries(1), option.WithMiddleware(bounded))}
}

// longestAnswer bounds the bytes that are read of an endpoint's answer, which is one query.
const longestAnswer = 1 << 20

func bounded(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, longestAnswer)
	}
	return resp, err
}

// longest bounds a query: twice the message's characters plus this many. A model that writes more has answered the
// message instead of rewriting it.
const longest = 2000

var errNoQuery = errors.New("the model gave no query")

// Rewrite implements contextbuilder.Rewriter. The model sees the message, the previous turns and the memory. Rewrite
// returns within the timeout.
func (r *Rewriter) Rewrite(ctx context.Context, message string, history []message.Message,
	memorySnippet string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	answer, err := r.client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: r.cfg.Model,
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage(prompt),
			openai.UserMessage(material(message, history, memorySnippet)),
		},
	})
	if err != nil {
		return "", fmt.Errorf("rewrite a query: %w", err)
	}
	if len(answer.Choices) == 0 || answer.Choices[0].FinishReason == "length" {
		return "", errNoQuery // none, or one that was cut off
	}
	query := strings.TrimSpace(answer.Choices[0].Message.Content)
	if query == "" || utf8.RuneCountInString(query) > 2*utf8.RuneCountInString(message)+longest {
		return "", errNoQuery
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
