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

// eraseIdentity erases all sessions that are linked to an identity: it closes one after the other, and waits while they
// are erased. It may be run again after any part.
func (e *Eraser) eraseIdentity(ctx context.Context, f *events.IdentityErased, at events.Position) (rest, error) {
	written, err := receiptsAt(ctx, e.log, at, "", f.IdentityID, f.ReceiptID)
	if err != nil || written[PlaceLog] != nil && len(written) > len(e.cfg.Places) {
		return rest{}, err
	}
	key := progressKey(f.ReceiptID, "")
	told := services.ErasureProgress{Began: time.Now().UTC()}
	if revision, err := e.notes.Read(ctx, key, &told); err != nil {
		return rest{}, err
	} else if revision == 0 {
		if err := e.notes.Put(ctx, key, told); err != nil {
			return rest{}, err
		}
	}
	sessions, err := e.sessionsOf(ctx, f, at)
	if err != nil {
		return rest{}, err
	}
	told.Sessions, told.SessionsDone, told.Erased = len(sessions), 0, 0
	closed := 0
	for i := range sessions {
		if err := e.notes.Put(ctx, key, told); err != nil {
			return rest{}, err
		}
		for ; closed < min(i+closedAhead*len(e.parts), len(sessions)); closed++ {
			if err := e.closeMember(ctx, &sessions[closed], f); err != nil {
				return rest{}, err
			}
		}
		erased, err := e.awaitErased(ctx, sessions[i])
		if err != nil {
			return rest{}, err
		}
		told.SessionsDone++
		told.Erased += erased
	}
	if err := e.notes.Put(ctx, key, told); err != nil {
		return rest{}, err
	}
	receipt := events.ErasureReceipt{
		IdentityID: f.IdentityID, ReceiptID: f.ReceiptID, Place: PlaceLog, Erased: told.Erased, Sessions: len(sessions),
	}
	if err := e.receipt(ctx, at, receipt); err != nil {
		return rest{}, err
	}
	e.cfg.Logger.Info(
		"an identity is erased from the log", "position", at, "sessions", len(sessions), "events", told.Erased,
	)
	last := events.Cursor{}
	for _, s := range sessions {
		last.Pass(s.at)
	}
	markers := []events.Position{at}
	for k, seq := range last {
		markers = append(markers, events.Position{Partition: k, Seq: seq})
	}
	return e.reached(markers, receipt, len(sessions), key), nil
}

// closedAhead is how many sessions of each partition are closed that are not erased yet: one that is in hand, and one
// that waits. Each view looks a session up when it is closed. Many at once would have the server read all their blocks
// while writes wait. Readers are shown none of the sessions meanwhile, whether they are closed or not.
const closedAhead = 2

// member is a session of an erased identity, its number in its partition, and where it was closed; at has the
// partition alone before that.
type member struct {
	id     string
	number int
	at     events.Position
	known  indexed
}

// sessionsOf returns the sessions that are linked to an identity in log order, of the partitions in turn: each
// partition may have an eraser in a process of its own.
func (e *Eraser) sessionsOf(ctx context.Context, gone *events.IdentityErased, at events.Position) ([]member, error) {
	var out []member
	for k := range e.parts {
		known, linked, err := e.linkedTo(ctx, gone.IdentityID, k, at)
		if err != nil {
			return nil, err
		}
		for n, session := range linked {
			out = append(out, member{session, n, events.Position{Partition: k}, known})
		}
	}
	slices.SortStableFunc(out, func(a, b member) int { return cmp.Compare(a.number, b.number) })
	return out, nil
}

// closeMember closes a session of an identity, unless it was closed before.
func (e *Eraser) closeMember(ctx context.Context, s *member, gone *events.IdentityErased) (err error) {
	s.at.Seq, err = e.erasure(ctx, s.known, s.at.Partition, s.id)
	if err != nil || s.at.Seq != 0 {
		return err
	}
	// All views look it up at once when it is closed.
	if err := e.log.Warm(ctx, s.id); err != nil {
		return err
	}
	s.at.Seq, err = e.close(ctx, s.id, gone, s.known.upTo)
	return err
}

// linkedTo returns the sessions of a partition that are linked to an identity, in log order, and the index that says
// so. It reads from the log what the index does not cover yet: the index holds what some eraser has looked at, and the
// log is the truth. In the identity's own partition it reads nothing after the erasure, since the process that feeds
// the eraser there closes sessions that are linked later.
func (e *Eraser) linkedTo(
	ctx context.Context, identity string, k int, gone events.Position,
) (known indexed, out []string, err error) {
	head, err := e.log.Head(ctx, k)
	if err != nil {
		return known, nil, err
	}
	known, err = e.parts[k].links.read(ctx, e.notes, k, e.log.Created(k))
	if err != nil {
		return known, nil, err
	}
	for _, seq := range known.at(identityHash(identity)) {
		session, err := e.linkAt(ctx, identity, events.Position{Partition: k, Seq: seq})
		if err != nil {
			return known, nil, err
		}
		if session != "" {
			out = append(out, session)
		}
	}
	if k == gone.Partition {
		head.Seq = gone.Seq
	}
	if known.upTo >= head.Seq {
		return known, out, nil
	}
	ahead := scan{log: e.log, partition: k, after: known.upTo, gentle: true}
	for m, err := range ahead.until(ctx, head.Seq) {
		if err != nil {
			return known, nil, err
		}
		if events.WithdrawalOf(m.Type()) == events.WithdrawsSession {
			if id, _, err := events.ParseSubject(m.Subject); err == nil {
				known.add(sessionHash(id), m.Position.Seq)
			}
		}
		if m.Type() != events.TypeSessionLinked {
			continue
		}
		session, err := e.linkAt(ctx, identity, m.Position)
		if err != nil {
			return known, nil, err
		}
		if session == "" {
			continue
		}
		// As in the fold the first link stands; of many in the log this is that one.
		state, err := e.fold(ctx, session, maxSeq, nil)
		if err != nil {
			return known, nil, err
		}
		if state.Identity == identity && state.LinkedAt == m.Position.Seq {
			out = append(out, session)
		}
	}
	known.upTo = head.Seq
	return known, out, nil
}

// linkAt returns the session that an event links to an identity, "" if it links none.
func (e *Eraser) linkAt(ctx context.Context, identity string, at events.Position) (string, error) {
	r, found, err := e.log.At(ctx, at)
	if err != nil || !found {
		return "", err
	}
	if f, ok := r.Fact.(*events.SessionLinked); ok && f.IdentityID == identity {
		return f.SessionID, nil
	}
	return "", nil
}

// close ends a session of an identity that was not erased up to a sequence, and returns where it was erased: another
// writer may have been first.
func (e *Eraser) close(ctx context.Context, session string, gone *events.IdentityErased, after uint64) (uint64, error) {
	at, err := e.append(ctx, gone.Of(session))
	if err != nil {
		return 0, err
	}
	for r, err := range e.log.Session(ctx, session, after, at.Seq) {
		if err != nil {
			return 0, err
		}
		if _, ok := r.Fact.(*events.SessionErased); ok {
			return r.Position.Seq, nil
		}
	}
	return 0, errors.New("a session that was closed is not")
}

// linked closes a session that was linked to an identity which was erased.
func (e *Eraser) linked(ctx context.Context, j *projections.Judged) error {
	// An erasure that comes later finds the link in the index.
	gone, _, err := e.log.IdentityErasure(ctx, j.Head.Identity, j.Position)
	if err == nil && gone != nil {
		_, err = e.close(ctx, j.SessionID, gone, j.Position.Seq)
	}
	return err
}

// awaitErased waits until a closed session is erased from the log, and returns how many events went.
func (e *Eraser) awaitErased(ctx context.Context, s member) (int, error) {
	for {
		written, err := receiptsAt(ctx, e.log, s.at, s.id, "", "")
		if err != nil {
			return 0, err
		}
		if r := written[PlaceLog]; r != nil {
			return r.Erased, nil
		}
		if !pause.For(ctx, lookEvery) {
			return 0, ctx.Err()
		}
	}
}
