package services

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// SearchMode is how a search finds turns.
type SearchMode string

// The modes: by words, by meaning, or by both, fused by rank. AnyMode is SearchHybrid where the index answers, else
// SearchWords.
const (
	AnyMode       SearchMode = ""
	SearchWords   SearchMode = "words"
	SearchMeaning SearchMode = "meaning"
	SearchHybrid  SearchMode = "hybrid"
)

var (
	// ErrIndex: the index of meanings, or what makes vectors for it, does not answer. A search by words still does.
	ErrIndex = errors.New("the index of meanings does not answer")
	// ErrNoIndex comes with ErrIndex where none is configured.
	ErrNoIndex = errors.New("no index of meanings is configured: set TURNLEDGER_WEAVIATE_URL and " +
		"TURNLEDGER_EMBED_URL, or search with mode words")
)

// SearchAsk asks for a page of hits, at most Limit.
type SearchAsk struct {
	projections.SearchFilter
	Mode        SearchMode
	Limit       int
	Cursor      string
	MinPosition []events.Position
}

// SearchPage is a page of hits at Positions, one of each partition; NextCursor is empty at the end. Lag is how many
// events of the log the index has not applied yet, 0 with words.
type SearchPage struct {
	Hits       []projections.Hit
	Mode       SearchMode
	Positions  []events.Position
	Lag        uint64
	NextCursor string
}

// Searcher finds turns. By words it finds turns of linked sessions, exactly: all that was acknowledged. By meaning it
// may lag. In no mode it shows what was redacted before the call. Its errors are those of an IdentityReader, and
// ErrIndex.
type Searcher interface {
	Search(ctx context.Context, ask SearchAsk) (SearchPage, error)
}

// SimilarAsk asks for finalized turns whose question is near to a question, at most Limit. An empty IdentityID means
// all.
type SimilarAsk struct {
	Question, IdentityID string
	Limit                int
	MinScore             float64
	MinPosition          []events.Position
}

// SimilarHit is a turn with a similar question.
type SimilarHit struct {
	projections.Hit
	Question, Answer string
}

// SimilarTurns finds turns whose question is near in meaning. Its errors are those of a Searcher.
type SimilarTurns interface {
	Similar(ctx context.Context, ask SimilarAsk) ([]SimilarHit, error)
}

// TurnRef names a turn that a view has found. IdentityID is what the view knows; it may lag.
type TurnRef struct {
	SessionID, IdentityID string
	TurnID                uuid.UUID
}

// TrueTurn is a turn as it is now.
type TrueTurn struct {
	session.Turn
	SessionID, IdentityID string
	Position              events.Position
}

// TurnFinder returns those of some turns that may be shown now: finalized, neither redacted nor replaced, and of no
// erased session or identity. What was acknowledged before the call counts.
type TurnFinder interface {
	FindTurns(ctx context.Context, refs []TurnRef) (map[uuid.UUID]TrueTurn, error)
}
