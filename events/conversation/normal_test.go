package conversation_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/turnledger/turnledger/events/conversation"
)

// normal shows what the policy makes of a command.
func (r *runner) normal(a args) (string, error) {
	switch a.words[0] {
	case "start":
		c, dropped, err := policy.NormalStart(r.startOf(a))
		return normalized(err, dropped, texts(&conversation.Turn{Question: &c.Question}))
	case "finalize":
		c, dropped, err := policy.NormalFinalize(r.finalizeOf(a))
		return normalized(err, dropped, texts(&conversation.Turn{Answer: &c.Answer, AnswerMetadata: c.Metadata}))
	case "correct":
		c, err := policy.NormalCorrect(r.correctOf(a))
		var b strings.Builder
		for _, f := range []struct {
			name string
			text *string
		}{{"q", c.QuestionNeutral}, {"qt", c.QuestionTranslated}, {"a", c.AnswerNeutral}, {"at", c.AnswerTranslated}} {
			if f.text != nil {
				fmt.Fprintf(&b, "\n    %s: %s", f.name, *f.text)
			}
		}
		return normalized(err, nil, b.String())
	default:
		return "", errors.New("unknown command " + a.words[0])
	}
}

func normalized(err error, dropped []string, texts string) (string, error) {
	var invalid *conversation.Invalid
	switch {
	case errors.As(err, &invalid):
		return "invalid " + invalid.Error() + "\n", nil
	case err != nil:
		return "", err
	}
	out := "ok"
	if len(dropped) > 0 {
		out += " dropped=" + strings.Join(dropped, ",")
	}
	return out + texts + "\n", nil
}
