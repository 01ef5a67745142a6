package client

import (
	"encoding/json"
	"time"
)

// Session is a session without its turns.
type Session struct {
	SessionID    string            `json:"session_id"`
	IdentityID   string            `json:"identity_id"`
	Found        bool              `json:"found"`
	Title        string            `json:"title"`
	Metadata     map[string]string `json:"metadata"`
	Turns        int               `json:"turns"`
	Pending      int               `json:"pending"`
	CreatedAt    time.Time         `json:"created_at"`
	LastActiveAt time.Time         `json:"last_active_at"`
	// ForkedFrom is where a branch begins; nil for a session that is no branch.
	ForkedFrom *ForkedFrom `json:"forked_from"`
	Position   string      `json:"position"`
	// Duplicate is set in answers to writes: the log had it already.
	Duplicate bool `json:"duplicate"`
}

// ForkedFrom is the last turn that a branch shares, and its session. TurnID is empty where none is shared.
type ForkedFrom struct {
	SessionID string `json:"session_id"`
	TurnID    string `json:"turn_id"`
}

// Fork asks for a branch of a session: up to and with TurnID, or up to right before BeforeTurnID, or, without either,
// up to the last finalized turn. RequestID is the idempotency key of the request. Branch may be empty.
type Fork struct {
	SessionID    string `json:"-"`
	RequestID    string `json:"request_id,omitempty"`
	TurnID       string `json:"turn_id,omitempty"`
	BeforeTurnID string `json:"before_turn_id,omitempty"`
	Branch       string `json:"session_id,omitempty"`
}

// ContextRequest asks for the messages to send to a model. Zero values mean the server's defaults. ConversationHistory,
// if set, replaces the stored history.
type ContextRequest struct {
	Message             string            `json:"message"`
	TurnID              string            `json:"turn_id,omitempty"`
	SystemPrompt        string            `json:"system_prompt,omitempty"`
	MaxMessages         int               `json:"max_messages,omitempty"`
	MaxTokens           int               `json:"max_tokens,omitempty"`
	IdleTimeout         string            `json:"idle_timeout,omitempty"`
	Language            string            `json:"language,omitempty"`
	IncludePending      bool              `json:"include_pending,omitempty"`
	Memory              bool              `json:"memory,omitempty"`
	Rewrite             bool              `json:"rewrite,omitempty"`
	Summary             bool              `json:"summary,omitempty"`
	IdentityID          string            `json:"identity_id,omitempty"`
	ConversationHistory []json.RawMessage `json:"conversation_history,omitzero"`
	Format              string            `json:"format,omitempty"`
	AsOf                *AsOf             `json:"as_of,omitempty"`
}

// AsOf is a position of the log, inclusive, or a time. Exactly one of the two is set.
type AsOf struct {
	Position string    `json:"position,omitempty"`
	Time     time.Time `json:"time,omitzero"`
}

// Context is the prompt for a model. In the anthropic format System is apart.
type Context struct {
	Messages        []json.RawMessage `json:"messages"`
	System          string            `json:"system"`
	SessionFound    bool              `json:"session_found"`
	HistoryMessages int               `json:"history_messages"`
	HistoryTurns    int               `json:"history_turns"`
	HistoryTurnIDs  []string          `json:"history_turn_ids"`
	DroppedTurns    int               `json:"dropped_turns"`
	Summary         *ShownSummary     `json:"summary"`
	MemorySnippet   string            `json:"memory_snippet"`
	RewrittenQuery  string            `json:"rewritten_query"`
	RewriteFallback bool              `json:"rewrite_fallback"`
	Warnings        []string          `json:"warnings"`
	Position        string            `json:"position"`
	Source          string            `json:"source"`
}

// Projection says how far a view is. While the log's head can't be read, Head is empty and both lags are nil. Both lags
// are also nil if the view follows another log. Rate is in events per second.
type Projection struct {
	Name        string   `json:"name"`
	Partition   int      `json:"partition"`
	Position    string   `json:"position"`
	Head        string   `json:"head"`
	LagEvents   *uint64  `json:"lag_events"`
	LagSeconds  *float64 `json:"lag_seconds"`
	Rate        float64  `json:"rate"`
	State       string   `json:"state"`
	Generation  int      `json:"generation"`
	Rebuildable bool     `json:"rebuildable"`
	LastError   string   `json:"last_error"`
	// ETASeconds is the remaining time of a rebuild.
	ETASeconds float64 `json:"eta_seconds"`
}

// DeadLetter is an event that a view could not apply. State is waiting, dropped, or, after a retry, applied.
type DeadLetter struct {
	Projection string    `json:"projection"`
	Position   string    `json:"position"`
	EventID    string    `json:"event_id"`
	Type       string    `json:"type"`
	SessionID  string    `json:"session_id"`
	State      string    `json:"state"`
	Reason     string    `json:"reason"`
	Attempts   int       `json:"attempts"`
	ParkedAt   time.Time `json:"parked_at"`
	DroppedAt  time.Time `json:"dropped_at,omitzero"`
	DroppedBy  string    `json:"dropped_by"`
	DropReason string    `json:"drop_reason"`
}
