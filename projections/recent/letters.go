package recent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
)

// Restorable is a view that can take a session back from the log.
type Restorable interface {
	View
	DeadLetters(ctx context.Context) ([]projections.DeadLetter, error)
	DropDeadLetter(ctx context.Context, at events.Position, d projections.Drop) (projections.DeadLetter, error)
	// Restore holds a session as the log had it up to a sequence, in the place of what
	// the view holds of it, and takes its dead letters up to there away. It does nothing
	// and says false where the view is not that far, or has applied or parked more of the
	// session meanwhile. The state is the view's own from then on.
	Restore(ctx context.Context, partition int, folded *conversation.State, upTo uint64) (bool, error)
}

// Letters are the dead letters of a view. A view can't apply an event behind its
// checkpoint; a retry folds the whole session from the log, as it was when the view
// stood where it stands, and puts that in its place.
type Letters struct {
	Restorable
	log   projections.SessionReader
	rules conversation.Rules
}

var _ projections.DeadLetterQueue = (*Letters)(nil)

// NewLetters looks after a view's dead letters; rules are those of the view.
func NewLetters(view Restorable, log projections.SessionReader, rules conversation.Rules) *Letters {
	rules.Slim = false
	return &Letters{view, log, rules}
}

// restoreTries bounds how often a session is folded anew because it went on meanwhile.
const (
	restoreTries = 50
	restorePause = 20 * time.Millisecond
)

var errBusy = errors.New("the session goes on too fast: retry the letter again")

// RetryDeadLetter implements projections.DeadLetterQueue. All letters of the session
// are settled with it.
func (l *Letters) RetryDeadLetter(ctx context.Context, at events.Position) (projections.Retried, error) {
	letter, err := FindLetter(ctx, l.Restorable, at)
	if err != nil {
		return projections.Retried{}, err
	}
	for range restoreTries {
		done, err := l.restore(ctx, letter)
		if err != nil {
			return projections.Retried{}, fmt.Errorf("retry %s in %s: %w", at, l.Name(), err)
		}
		if done {
			return projections.Retried{DeadLetter: letter, Applied: true}, nil
		}
		select {
		case <-ctx.Done():
			return projections.Retried{}, ctx.Err()
		case <-time.After(restorePause):
		}
	}
	return projections.Retried{}, fmt.Errorf("retry %s in %s: %w", at, l.Name(), errBusy)
}

func (l *Letters) restore(ctx context.Context, letter projections.DeadLetter) (bool, error) {
	// No session has an empty id: this asks for the position alone.
	stands, err := l.Load(ctx, "", letter.Position.Partition, 0)
	if err != nil {
		return false, err
	}
	s, upTo := conversation.New(letter.SessionID, l.rules), stands.Applied.Seq
	if letter.SessionID != "" {
		for e, err := range l.log.Session(ctx, letter.SessionID, 0, upTo) {
			if err != nil {
				return false, err
			}
			s.Fold(e)
		}
	}
	return l.Restore(ctx, letter.Position.Partition, s, upTo)
}

// FindLetter gives a view's dead letter of a position.
func FindLetter(ctx context.Context, view interface {
	DeadLetters(ctx context.Context) ([]projections.DeadLetter, error)
}, at events.Position,
) (projections.DeadLetter, error) {
	all, err := view.DeadLetters(ctx)
	if err != nil {
		return projections.DeadLetter{}, err
	}
	for _, letter := range all {
		if letter.Position == at {
			return letter, nil
		}
	}
	return projections.DeadLetter{}, projections.ErrNoDeadLetter
}

// Trim leaves of a folded session what a view holds: no tombstones, no replaced turns,
// and the newest of the rest.
func (l Limits) Trim(s *conversation.State) {
	s.Remove(func(t *conversation.Turn) bool {
		return t.Status == conversation.Redacted || t.Status == conversation.Replaced
	})
	s.DropOldest(l.MaxTurns)
}
