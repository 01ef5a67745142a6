package services

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/session"
)

// ErrNoSummaries: no model is configured that summarises.
var ErrNoSummaries = errors.New("no model is configured that summarises")

// Compaction stands for a history. Its Content is sealed: only its caller can use it, and only while the turns that it
// stands for are as they were.
type Compaction struct {
	ID, ResponseID, Content string
	CreatedAt               time.Time
	Usage                   session.Usage
}

// Written is a summary that a model wrote, or had written before: then it used nothing. Summary is its id, if it is
// recorded.
type Written struct {
	Summary uuid.UUID
	Text    string
	Usage   session.Usage
}
