package viewtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
)

// Folded returns a session as the log has it up to a sequence, of which it keeps so many turns.
func Folded(
	t testing.TB, log *jetlog.Log, rules session.Rules, id string, upTo uint64, keep int,
) *session.State {
	t.Helper()
	s := session.New(id, rules)
	for e, err := range log.Session(t.Context(), id, 0, upTo) {
		require.NoError(t, err)
		s.Fold(e)
	}
	s.DropOldest(keep)
	return s
}

// Still is a view, and an archive, of one session that stands where it is; without a State it has none. Asked counts
// what it was asked.
type Still struct {
	State *session.State
	At    uint64
	Asked int
}

// Load implements a view.
func (s *Still) Load(context.Context, string, int, int) (recent.Snapshot, error) {
	s.Asked++
	if s.State == nil {
		return recent.Snapshot{}, nil
	}
	return recent.Snapshot{State: s.State.Clone(), Applied: events.Position{Seq: s.At}}, nil
}

// Wait implements a view: it never gets there.
func (*Still) Wait(ctx context.Context, _ events.Position) error {
	<-ctx.Done()
	return ctx.Err()
}

// SessionTurns implements an archive.
func (s *Still) SessionTurns(context.Context, string, int) (*session.State, events.Position, error) {
	s.Asked++
	if s.State == nil {
		return nil, events.Position{}, nil
	}
	return s.State.Clone(), events.Position{Seq: s.At}, nil
}
