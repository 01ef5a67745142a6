package services

import (
	"context"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// Session is the answer to a write on a session.
type Session struct {
	SessionID string
	session.Head
	Position  events.Position
	Duplicate bool
}

// Summary is the answer to a summary of a session. Its Fact has the texts.
type Summary struct {
	SessionID string
	session.Summary
	Position  events.Position
	Duplicate bool
}

// SessionWriter records facts about a whole session.
type SessionWriter interface {
	LinkSession(ctx context.Context, sessionID, identityID, sourceHash string) (Session, error)
	ResetSession(ctx context.Context, sessionID, reason string) (Session, error)
	DescribeSession(ctx context.Context, c decide.Describe) (Session, error)
	ForkSession(ctx context.Context, c decide.ForkSession) (Session, error)
	// LastFork returns the newest fork of a session whose request begins with a prefix: its RequestID and its ChildID.
	LastFork(ctx context.Context, sessionID, prefix string) (decide.ForkSession, error)
	SummarizeSession(ctx context.Context, c decide.Summarize) (Summary, error)
}

// Ask says how much of a session a read needs.
type Ask struct {
	SessionID string
	// Shown is how many finalized turns the read needs, counted among the turns that prompts may show.
	Shown int
	// AllTurns asks for all turns, including tombstones and replaced turns; Shown is ignored then.
	AllTurns bool
	// Own leaves out the turns that a branch shares.
	Own bool
	// Pending: Shown also counts turns without an answer.
	Pending bool
	// MinPosition are positions that the reading must include.
	MinPosition []events.Position
	// KnownSeq, if above 0, is a sequence in the session's partition. The caller knows it to be durable, and knows that
	// it stands after all that the reading must show. So the read need not ask the log for its end, nor wait until
	// other writers' events are on disk.
	KnownSeq uint64
}

// CurrentBranch returns the session that a chat goes on in: the branch that was made current last while it stands, else
// the chat's own session.
func CurrentBranch(ctx context.Context, sessions SessionReader, chat string) (string, error) {
	of, err := sessions.Read(ctx, Ask{SessionID: chat, Own: true})
	if err != nil {
		return "", err
	}
	id := of.State.Description().CurrentBranch
	if id == "" || of.State.Erased != 0 {
		return chat, nil
	}
	branch, err := sessions.Read(ctx, Ask{SessionID: id, Own: true})
	if err != nil {
		return "", err
	}
	if s := branch.State; s.Erased != 0 || s.Fork().Root != of.State.RootID() {
		return chat, nil
	}
	return id, nil
}

// Source is where a reading comes from.
type Source string

// The sources of a reading (docs/contract.md#context).
const (
	FromView    Source = "view"
	FromViewLog Source = "view+log"
	FromLog     Source = "log"
	FromRequest Source = "request"
)

// Reading is a session as it is at Position, with the turns that a branch shares. The caller owns the state.
type Reading struct {
	State    *session.State
	Position events.Position
	// Others are positions of the other partitions that were read.
	Others []events.Position
	Source Source
	// RedactedLater are turns that a reading of the past leaves out because they were redacted later.
	RedactedLater []*session.Turn
}

// Passed notes that another partition was read up to a position.
func (r *Reading) Passed(at events.Position) {
	if at.Partition == r.Position.Partition {
		r.Position.Seq = max(r.Position.Seq, at.Seq)
		return
	}
	for i := range r.Others {
		if o := &r.Others[i]; o.Partition == at.Partition {
			o.Seq = max(o.Seq, at.Seq)
			return
		}
	}
	r.Others = append(r.Others, at)
}

// SessionReader reads sessions. A reading includes all that was acknowledged before the call, and reaches
// Ask.MinPosition, or else fails with ErrPositionNotReached. A failure is an error and never an empty session.
type SessionReader interface {
	Read(ctx context.Context, ask Ask) (Reading, error)
}

// SessionsAsk asks for a page of sessions, at most Limit.
type SessionsAsk struct {
	projections.SessionFilter
	Limit       int
	Cursor      string
	MinPosition []events.Position
}

// SessionPage is a page of sessions, the one that was active last first; NextCursor is empty at the end.
type SessionPage struct {
	Sessions   []projections.ListedSession
	NextCursor string
}

// SessionLister lists sessions, exactly: all that was acknowledged before the call is in the list. Its errors are those
// of an IdentityReader.
type SessionLister interface {
	Sessions(ctx context.Context, ask SessionsAsk) (SessionPage, error)
}

// CountsAsk asks for statistics, which are at least as new as MinPosition. WithAnomalies: the page has Anomalies, which
// take a second query.
type CountsAsk struct {
	projections.CountsFilter
	MinPosition   []events.Position
	WithAnomalies bool
}

// CountsPage are statistics as they were at Positions, one for each partition, which is LagEvents behind the log.
type CountsPage struct {
	Counts    []projections.Counts
	Anomalies []projections.Anomalies
	Positions []events.Position
	LagEvents uint64
}

// TurnCounter counts turns of all sessions. Its errors are those of an IdentityReader.
type TurnCounter interface {
	Counts(ctx context.Context, ask CountsAsk) (CountsPage, error)
}
