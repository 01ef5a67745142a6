package eraser

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

// enqueueIdentity lets an identity's erasure run beside everything else: it closes one
// session after the other, and waits while they are erased.
func (e *Eraser) enqueueIdentity(p *part, f *events.IdentityErased, at events.Position) {
	e.leave(func(ctx context.Context) error {
		for attempt := 1; ; attempt++ {
			err := e.eraseIdentity(ctx, f, at)
			if err == nil {
				p.end(at.Seq)
				return nil
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			e.cfg.Logger.Warn(
				"the erasure of an identity is tried again", "position", at, "attempt", attempt, "err", err,
			)
			if !pause(ctx, min(time.Duration(attempt)*500*time.Millisecond, longestPause)) {
				return ctx.Err()
			}
		}
	})
}

// eraseIdentity erases all sessions that are linked to an identity. It may be run again
// after any part.
func (e *Eraser) eraseIdentity(ctx context.Context, f *events.IdentityErased, at events.Position) error {
	written, err := receiptsAt(ctx, e.log, at, "", f.IdentityID, f.ReceiptID)
	if err != nil || written[PlaceLog] != nil && len(written) > len(e.cfg.Places) {
		return err
	}
	select {
	case e.atOnce <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	leave := sync.OnceFunc(func() { <-e.atOnce })
	defer leave()
	key := progressKey(f.ReceiptID, "")
	told := services.ErasureProgress{Began: time.Now().UTC()}
	if revision, err := e.notes.Read(ctx, key, &told); err != nil {
		return err
	} else if revision == 0 {
		if err := e.notes.Put(ctx, key, told); err != nil {
			return err
		}
	}
	sessions, err := e.sessionsOf(ctx, f, at)
	if err != nil {
		return err
	}
	told.Sessions, told.SessionsDone, told.Erased = len(sessions), 0, 0
	if err := e.notes.Put(ctx, key, told); err != nil {
		return err
	}
	last := map[int]events.Position{}
	closed := 0
	for i := range sessions {
		for ; closed < min(i+closedAhead*len(e.parts), len(sessions)); closed++ {
			if err := e.closeMember(ctx, &sessions[closed], f); err != nil {
				return err
			}
		}
		s := sessions[i]
		erased, err := e.awaitErased(ctx, s)
		if err != nil {
			return err
		}
		last[s.at.Partition] = events.Position{Partition: s.at.Partition, Seq: max(last[s.at.Partition].Seq, s.at.Seq)}
		told.SessionsDone++
		told.Erased += erased
		if err := e.notes.Put(ctx, key, told); err != nil {
			return err
		}
	}
	receipt := events.ErasureReceipt{
		IdentityID: f.IdentityID, ReceiptID: f.ReceiptID, Place: PlaceLog, Erased: told.Erased, Sessions: len(sessions),
	}
	if err := e.receipt(ctx, at, &receipt); err != nil {
		return err
	}
	e.cfg.Logger.Info(
		"an identity is erased from the log", "position", at, "sessions", len(sessions), "events", told.Erased,
	)
	leave() // views may be down for long
	markers := []events.Position{at}
	for _, p := range last {
		markers = append(markers, p)
	}
	err = e.reach(ctx, markers, func(place string) error {
		r := receipt
		r.Place, r.Erased = place, len(sessions)
		return e.receipt(ctx, at, &r)
	})
	if err != nil {
		return err
	}
	return e.notes.Drop(ctx, key)
}

// identitiesAtOnce is how many erasures of identities look at the log for what became of
// their sessions; one after the other is erased anyway.
const identitiesAtOnce = 8

// closedAhead is how many sessions of each partition are closed that are not erased yet:
// one that is in hand, and one that waits. Each view looks a session up when it is closed, so that many
// at once would have the server read all their blocks while writes wait; that nobody is
// shown the others meanwhile does not rest on their being closed.
const closedAhead = 2

// member is a session of an erased identity, and where it was closed; its partition
// before.
type member struct {
	id    string
	at    events.Position
	known indexed
}

// sessionsOf gives the sessions that are linked to an identity in log order, of the
// partitions in turn: each may have an eraser in a process of its own.
func (e *Eraser) sessionsOf(ctx context.Context, gone *events.IdentityErased, at events.Position) ([]member, error) {
	all := make([][]member, len(e.parts))
	most := 0
	for k := range all {
		known, linked, err := e.linkedTo(ctx, gone.IdentityID, k, at)
		if err != nil {
			return nil, err
		}
		for _, session := range linked {
			all[k] = append(all[k], member{session, events.Position{Partition: k}, known})
		}
		most = max(most, len(linked))
	}
	var out []member
	for n := range most {
		for _, sessions := range all {
			if n < len(sessions) {
				out = append(out, sessions[n])
			}
		}
	}
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

// linkedTo gives the sessions of a partition that are linked to an identity, in log order,
// and the index that says so. What that does not know yet is read from the log: the
// index is what some eraser has looked at, and the log is the truth. Of the identity's own
// partition nothing behind its erasure need be known, since whoever feeds the eraser that
// closes what comes later.
func (e *Eraser) linkedTo(
	ctx context.Context, identity string, k int, gone events.Position,
) (indexed, []string, error) {
	head, err := e.log.Head(ctx, k)
	if err != nil {
		return indexed{}, nil, err
	}
	known, err := e.parts[k].links.read(ctx, e.notes, k, e.log.Created(k))
	if err != nil {
		return known, nil, err
	}
	var out []string
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
	err = scan{
		log: e.log, partition: k, after: known.upTo, gentle: true,
	}.until(ctx, head.Seq, func(m jetlog.Message) error {
		if events.WithdrawalOf(m.Type()) == events.WithdrawsSession {
			if id, _, err := events.ParseSubject(m.Subject); err == nil {
				known.add(sessionHash(id), m.Position.Seq)
			}
		}
		if m.Type() != events.TypeSessionLinked {
			return nil
		}
		session, err := e.linkAt(ctx, identity, m.Position)
		if err != nil || session == "" {
			return err
		}
		// As in the fold the first link stands; of many in the log this is that one.
		state, err := e.fold(ctx, session, maxSeq, nil)
		if err == nil && state.Identity == identity && state.LinkedAt == m.Position.Seq {
			out = append(out, session)
		}
		return err
	})
	known.upTo = head.Seq
	return known, out, err
}

// linkAt gives the session that an event links to an identity, "" where it does not.
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

// close ends a session of an identity that was not erased up to a sequence, and tells
// where it was erased: somebody else may have been first.
func (e *Eraser) close(ctx context.Context, session string, gone *events.IdentityErased, after uint64) (uint64, error) {
	ack, err := e.log.Append(ctx, jetlog.Append{Facts: []events.Fact{gone.Of(session)}})
	if err == nil {
		err = e.log.Durable(ctx, ack.Position)
	}
	if err != nil {
		return 0, err
	}
	for r, err := range e.log.Session(ctx, session, after, ack.Position.Seq) {
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

// awaitErased waits until a closed session is erased from the log, and tells how many
// events went.
func (e *Eraser) awaitErased(ctx context.Context, s member) (int, error) {
	for {
		written, err := receiptsAt(ctx, e.log, s.at, s.id, "", "")
		if err != nil {
			return 0, err
		}
		if r := written[PlaceLog]; r != nil {
			return r.Erased, nil
		}
		if !pause(ctx, lookEvery) {
			return 0, ctx.Err()
		}
	}
}
