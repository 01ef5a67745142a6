package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnledger/turnledger/services"
)

// Echo is the built-in model, for trying things out without a key: it repeats the last
// message, and says that it is no real model.
type Echo struct{}

var _ Model = Echo{}

// Name implements Model.
func (Echo) Name() string { return "echo" }

// Format implements Model.
func (Echo) Format() services.Format { return services.OpenAI }

// Answer implements Model.
func (Echo) Answer(_ context.Context, p Prompt, emit func(string)) (string, services.Finish, error) {
	var last struct {
		Content string `json:"content"`
	}
	if len(p.Messages) > 0 {
		_ = json.Unmarshal(p.Messages[len(p.Messages)-1], &last) // without a text the echo is empty
	}
	answer := fmt.Sprintf(
		"[echo, no model is configured: set TURNLEDGER_MODEL_URL] You said: %s (%d messages before)", last.Content,
		max(len(p.Messages)-1, 0),
	)
	for word := range strings.SplitAfterSeq(answer, " ") {
		emit(word)
	}
	return answer, services.FinishStop, nil
}
