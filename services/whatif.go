package services

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// PromptSettings are what a prompt was built with, as the log keeps them with its answer. They have the names of a
// ContextRequest. Digest is a keyed digest of the prompt (align.Seal), or "" where there is no key.
type PromptSettings struct {
	// AsOf is the position up to which the session was read.
	AsOf         events.Position `json:"as_of"`
	Digest       string          `json:"digest,omitempty"`
	SystemPrompt string          `json:"system_prompt,omitempty"`
	// System are the messages in the place of SystemPrompt, where they say more than that.
	System         []json.RawMessage `json:"system,omitempty"`
	MaxMessages    int               `json:"max_messages,omitempty"`
	MaxTokens      int               `json:"max_tokens,omitempty"`
	MaxPrompt      int               `json:"max_prompt,omitempty"`
	Truncate       bool              `json:"truncate,omitempty"`
	IdleTimeout    time.Duration     `json:"idle_timeout,omitempty"`
	Blocks         bool              `json:"blocks,omitempty"`
	Language       Language          `json:"language,omitempty"`
	IncludePending bool              `json:"include_pending,omitempty"`
	Through        bool              `json:"through,omitempty"`
	Memory         bool              `json:"memory,omitempty"`
	Rewrite        bool              `json:"rewrite,omitempty"`
	Summary        bool              `json:"summary,omitempty"`
	Format         Format            `json:"format,omitempty"`
	// Sent is how many messages a client sent that keeps its history itself, those of the system aside; 0 for a prompt
	// that was built here.
	Sent int `json:"sent,omitempty"`
}

// WhatIfAsk asks what models were told, and what they would have been told with other settings: of sessions, or of the
// sessions of an identity, or of all that have answers since a time.
type WhatIfAsk struct {
	Sessions   []string
	IdentityID string
	// Since leaves out turns that were answered before.
	Since time.Time
	// The zero value of a setting leaves it as it was.
	MaxTokens, MaxMessages int
	Summary, Memory        bool
	System                 string
}

// Told says how a prompt is known.
type Told string

// A prompt comes out as it was sent; or it is not known how it was built, and the settings in force are assumed; or
// what it was made of is not there whole any more.
const (
	ToldSame    Told = "same"
	ToldAssumed Told = "assumed"
	ToldPart    Told = "part"
)

// WhatIf says what a model was told of the history before an answer, and what it would have been told. LeftOut are
// turns that it would have been told no more, BroughtIn those that it would have been told, too.
type WhatIf struct {
	SessionID  string
	TurnID     uuid.UUID
	Position   events.Position
	Told       Told
	TokensTold int
	TokensIf   int
	TurnsTold  int
	TurnsIf    int
	LeftOut    []uuid.UUID
	BroughtIn  []uuid.UUID
}

// WhatIfs returns a row for each answered turn, session by session, each session's in its order. It stops at an error
// of row. Its other errors are those of an EventReader and a ContextBuilder.
type WhatIfs interface {
	WhatIf(ctx context.Context, ask WhatIfAsk, row func(WhatIf) error) error
}

// WhatIfTotal sums rows up.
type WhatIfTotal struct {
	Turns      int `json:"turns"`
	Same       int `json:"same"`
	Assumed    int `json:"assumed"`
	Part       int `json:"part"`
	TokensTold int `json:"tokens_told"`
	TokensIf   int `json:"tokens_if"`
	TurnsTold  int `json:"turns_told"`
	TurnsIf    int `json:"turns_if"`
	LeftOut    int `json:"left_out"`
	BroughtIn  int `json:"brought_in"`
}

// Add adds a row.
func (t *WhatIfTotal) Add(r WhatIf) {
	t.Turns++
	switch r.Told {
	case ToldSame:
		t.Same++
	case ToldAssumed:
		t.Assumed++
	case ToldPart:
		t.Part++
	}
	t.TokensTold, t.TokensIf = t.TokensTold+r.TokensTold, t.TokensIf+r.TokensIf
	t.TurnsTold, t.TurnsIf = t.TurnsTold+r.TurnsTold, t.TurnsIf+r.TurnsIf
	t.LeftOut, t.BroughtIn = t.LeftOut+len(r.LeftOut), t.BroughtIn+len(r.BroughtIn)
}
