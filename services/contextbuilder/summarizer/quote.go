package summarizer

import (
	"context"
	_ "embed" // the prompt
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
)

// promptVersion names the prompt's file, and is part of the id of each summary. A changed prompt is a new file.
const promptVersion = "v1"

//go:embed prompts/v1.txt
var instructions string

// Bounds of what a model is given and may answer, in characters.
const (
	longestMessage = 4_000
	longestSummary = 8_000
)

var (
	errLanguage = errors.New("the model wrote in letters of another script")
	errSlow     = errors.New("the model did not answer in time")
)

// quoted is what a model is given of a conversation, as data.
type quoted struct {
	SoFar    string   `json:"summary_so_far"`
	Messages []quotes `json:"messages"`
}

type quotes struct {
	Role string `json:"role"`
	Text string `json:"text"`
}

func quote(turns []*session.Turn, lang services.Language, soFar string) quoted {
	return quoteAll(contextbuilder.MessagesOf(turns, lang), soFar)
}

func quoteAll(messages []message.Message, soFar string) quoted {
	out := quoted{SoFar: soFar}
	for _, m := range messages {
		if words := []rune(m.Words()); len(words) > 0 {
			out.Messages = append(out.Messages, quotes{m.Role(), string(words[:min(len(words), longestMessage)])})
		}
	}
	return out
}

func (q quoted) text() string {
	var b strings.Builder
	b.WriteString(q.SoFar)
	for _, m := range q.Messages {
		b.WriteString(m.Text)
	}
	return b.String()
}

// ask asks the model once for a summary.
func (h *Handler) ask(ctx context.Context, q quoted) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	given, err := events.JSON(q)
	if err != nil {
		return "", err
	}
	text, err := services.Write(ctx, h.cfg.Model, instructions, string(given), longestSummary)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", errSlow
	case err != nil:
		return "", fmt.Errorf("ask the summary's model: %w", err)
	case otherScript(q.text(), text):
		return "", errLanguage
	}
	return text, nil
}

// otherScript reports whether of two texts one is in Latin letters, and the other in other ones.
func otherScript(a, b string) bool {
	x, y := latin(a), latin(b)
	return x > 0.8 && y < 0.2 || x < 0.2 && y > 0.8
}

// latin returns the share of Latin letters; one half of a text without letters.
func latin(text string) float64 {
	of, all := 0, 0
	for _, r := range text {
		if unicode.IsLetter(r) {
			all++
			if unicode.Is(unicode.Latin, r) {
				of++
			}
		}
	}
	if all == 0 {
		return 0.5
	}
	return float64(of) / float64(all)
}
