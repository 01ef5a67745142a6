package eraser

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

// eraseIdentity erases all sessions that are linked to an identity: it closes one after the other, and waits until each
// is erased. After a failure anywhere it may be run again.
func (e *Eraser) eraseIdentity(ctx context.Context, f *events.IdentityErased, at events.Position) (remainder, error) {
	written, err := identityReceipts(ctx, e.log, at, f.IdentityID, f.ReceiptID)
	if err != nil || written[PlaceLog] != nil && len(written) > len(e.cfg.Places) {
		return remainder{}, err
	}
	key := progressKey(f.ReceiptID, "")
	var progress progressNote
	progress.Began = time.Now().UTC()
	if _, err := e.notes.Read(ctx, key, &progress); err != nil {
		return remainder{}, err
	}
	if progress.Nodes == nil {
		if progress.witness, err = e.witness(ctx); err != nil {
			return remainder{}, err
		}
	}
	if err := e.notes.Put(ctx, key, progress); err != nil {
		return remainder{}, err
	}
	sessions, err := e.sessionsOf(ctx, f.IdentityID)
	if err != nil {
		return remainder{}, err
	}
	shared := services.SharedTurns{}
	progress.Sessions, progress.SessionsDone, progress.Erased = len(sessions), 0, 0
	closed := 0
	for i := range sessions {
		if err := e.notes.Put(ctx, key, progress); err != nil {
			return remainder{}, err
		}
		for ; closed < min(i+closedAhead*len(e.parts), len(sessions)); closed++ {
			if err := e.closeLinked(ctx, &sessions[closed], f); err != nil {
				return remainder{}, err
			}
		}
		erased, err := e.awaitErased(ctx, sessions[i])
		if err != nil {
			return remainder{}, err
		}
		progress.SessionsDone++
		progress.Erased += erased.Erased
		shared.Turns += erased.SharedTurns
	}
	if shared.Branches, err = e.branchesAmong(ctx, sessions); err != nil {
		return remainder{}, err
	}
	if err := e.notes.Put(ctx, key, progress); err != nil {
		return remainder{}, err
	}
	receipt := events.ErasureReceipt{
		IdentityID: f.IdentityID, ReceiptID: f.ReceiptID, Place: PlaceLog, Erased: progress.Erased,
		Sessions: len(sessions), Branches: shared.Branches, SharedTurns: shared.Turns,
	}
	e.cfg.Logger.Info(
		"an identity is erased from the log", "position", at, "sessions", len(sessions), "events", progress.Erased,
	)
	last := events.Cursor{}
	for _, s := range sessions {
		last.Pass(s.at)
	}
	markers := []events.Position{at}
	for k, seq := range last {
		markers = append(markers, events.Position{Partition: k, Seq: seq})
	}
	left := e.reached(markers, receipt, len(sessions), key)
	left.prove = func(ctx context.Context) error { return e.proveErasure(ctx, at, receipt, key, &progress) }
	return left, nil
}

// closedAhead bounds the sessions of each partition that are closed but not erased yet: one that is being erased, and
// one that waits. Each view looks a session up when it is closed, so closing many at once would make the server read
// all their blocks while writes wait. Readers see none of the identity's sessions meanwhile, closed or not.
const closedAhead = 2

// linkedSession is a session of an erased identity. at is the position at which the session was closed; before that, at
// holds only the partition.
type linkedSession struct {
	id     string
	number int
	at     events.Position
}

// sessionsOf returns the sessions that are linked to an identity, each partition's in log order and the partitions
// interleaved, since each partition may have an eraser in a process of its own. Sessions that are linked later are
// closed by the process that feeds the eraser of their partition.
func (e *Eraser) sessionsOf(ctx context.Context, identity string) ([]linkedSession, error) {
	var out []linkedSession
	for k := range e.parts {
		if err := e.ownersNow(ctx, k); err != nil {
			return nil, err
		}
		sessions, err := e.cfg.Owners.Sessions(ctx, identity, k)
		if err != nil {
			return nil, err
		}
		for n, session := range sessions {
			out = append(out, linkedSession{session.Session, n, events.Position{Partition: k}})
		}
	}
	slices.SortStableFunc(out, func(a, b linkedSession) int { return cmp.Compare(a.number, b.number) })
	return e.withBranches(ctx, out)
}

// closeLinked closes a session of an identity, unless the session's last event shows that it is closed already: an
// erasure, or the receipt of one. It sets the session's position to that of the erasure.
func (e *Eraser) closeLinked(ctx context.Context, s *linkedSession, gone *events.IdentityErased) (err error) {
	if s.at.Seq, err = e.log.Last(ctx, s.id); err != nil {
		return err
	}
	last, _, err := e.log.At(ctx, s.at)
	if err != nil {
		return err
	}
	if last.Type != events.TypeSessionErased && last.Type != events.TypeErasureReceipt {
		// All views look the session up at once when it is closed.
		if err := e.log.Warm(ctx, s.id); err != nil {
			return err
		}
		if s.at, err = e.append(ctx, gone.Of(s.id)); err != nil {
			return err
		}
	}
	s.at.Seq, err = e.closedAt(ctx, s.id, s.at.Seq)
	return err
}

// closedAt returns where a closed session was erased. Another writer may have closed it first.
func (e *Eraser) closedAt(ctx context.Context, session string, upTo uint64) (uint64, error) {
	for r, err := range e.log.Session(ctx, session, 0, upTo) {
		if err != nil {
			return 0, err
		}
		if _, ok := r.Fact.(*events.SessionErased); ok {
			return r.Position.Seq, nil
		}
	}
	return 0, errors.New("a session that was closed is not")
}

// linked closes a session that was linked to an identity after the identity was erased.
func (e *Eraser) linked(ctx context.Context, j *projections.Judged) error {
	// An erasure that comes after the link finds the link in the index.
	gone, _, err := e.log.IdentityErasure(ctx, j.Head.Identity, j.Position)
	if err == nil && gone != nil {
		_, err = e.append(ctx, gone.Of(j.SessionID))
	}
	return err
}

// awaitErased waits until a closed session is erased from the log, and returns the receipt that says so.
func (e *Eraser) awaitErased(ctx context.Context, s linkedSession) (*stamped, error) {
	for {
		written, err := sessionReceipts(ctx, e.log, s.at, s.id, anyReceipt)
		if err != nil {
			return nil, err
		}
		if r := written[PlaceLog]; r != nil {
			return r, nil
		}
		if !pause.For(ctx, lookEvery) {
			return nil, ctx.Err()
		}
	}
}
