package jetlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// Last returns the last sequence of a session's subject as the leader knows it, or 0 if the log does not know the
// session.
func (l *Log) Last(ctx context.Context, sessionID string) (uint64, error) {
	p, subject := l.partitionOf(sessionID), events.SessionSubject(sessionID)
	for range doubts {
		last, err := l.lastOf(ctx, p, subject)
		if err != nil || last > 0 {
			return last, err
		}
		// The server answers every failure of its store as if there was no event.
		n, err := l.count(ctx, p, subject)
		if err != nil || n == 0 {
			return 0, err
		}
	}
	return 0, fmt.Errorf("last of a subject: %w", p.withheld())
}

// Seen returns the last sequence of a session's subject as Last does, with one question. A 0 is no proof: the server
// answers every failure of its store as if there was no event.
func (l *Log) Seen(ctx context.Context, sessionID string) (uint64, error) {
	p, subject := l.partitionOf(sessionID), events.SessionSubject(sessionID)
	if !p.shared.Load() && !p.mirrored.Load() { // the only server says it directly, for less
		if last, err := l.directLast(ctx, p, subject); err == nil {
			return last, nil
		}
	}
	return l.lastOf(ctx, p, subject)
}

func (l *Log) directLast(ctx context.Context, p *partition, subject string) (last uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, replicaDeadline)
	defer cancel()
	err = l.each(ctx, p, []string{fmt.Sprintf(`{"last_by_subj":%q}`, subject)}, func(m *nats.Msg) error {
		last, err = strconv.ParseUint(serverHeader(m, jetstream.SequenceHeader), 10, 64)
		return err
	})
	return last, err
}

// Unseen returns those of the sessions of which the log seems to have no events, with one question a partition. It may
// return none where that would not do; then the caller asks Seen for each. As with Seen, this is no proof.
func (l *Log) Unseen(ctx context.Context, sessionIDs []string) (unseen []string) {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	for _, p := range l.partitions {
		var own, subjects []string
		for _, id := range sessionIDs {
			if l.partitionOf(id) == p {
				own, subjects = append(own, id), append(subjects, events.SessionSubject(id))
			}
		}
		if len(own) == 0 || p.shared.Load() { // a replica may be behind
			continue
		}
		ask := map[string]any{"multi_last": subjects, "batch": 1, "max_bytes": pageBytes}
		found, end, err := direct(ctx, l.reads, p, ask, math.MaxUint64, 1)
		if err == nil && end == ended && len(found) == 0 {
			unseen = append(unseen, own...)
		}
	}
	return unseen
}

// doubts is how often a contradiction between the server's store and its index is looked at: an event may come, or be
// erased, between two questions.
const doubts = 3

func (p *partition) withheld() error {
	return fmt.Errorf("%w: the server of %s has events that it does not give: look at its log and its disk",
		ErrUnavailable, p.name)
}

func (l *Log) lastOf(ctx context.Context, p *partition, subject string) (uint64, error) {
	m, err := l.message(ctx, p, map[string]any{"last_by_subj": subject, "no_hdr": true})
	if err != nil {
		return 0, fmt.Errorf("last of a subject: %w", err)
	}
	if m == nil {
		return 0, nil
	}
	return m.Seq, nil
}

// Session returns the events of a session after a sequence and up to another, in order; all of them are durable. On a
// single server it reads directly. In a cluster it first asks the leader for the session's last sequence, and does not
// end before that sequence, since a follower's direct answer may be old (docs/design.md#reading).
func (l *Log) Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	return l.subject(ctx, l.partitionOf(sessionID), events.SessionSubject(sessionID), after, upTo, pages)
}

// Identity returns the events that concern an identity and no single session, as Session does.
func (l *Log) Identity(ctx context.Context, identityID string) iter.Seq2[events.Recorded, error] {
	return l.subject(ctx, l.partitionOf(identityID), events.IdentitySubject(identityID), 0, math.MaxUint64, pages)
}

func (l *Log) subject(
	ctx context.Context, p *partition, subject string, after, upTo uint64, pace pace,
) iter.Seq2[events.Recorded, error] {
	return func(yield func(events.Recorded, error) bool) {
		r := sessionRead{log: l, p: p, subject: subject, after: after, upTo: upTo, pace: pace}
		if err := r.leaderFirst(ctx); err != nil {
			yield(events.Recorded{}, err)
			return
		}
		if after >= upTo || r.askedLeader && r.mustReach > 0 && r.mustReach <= after {
			return // there is nothing to read
		}
		for {
			// If the leader knows of no event, no replica is asked: confirm asks the leader's index.
			var page []events.Recorded
			var err error
			done := r.askedLeader && r.mustReach == 0
			if !done {
				page, done, err = r.page(ctx)
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
			if done && err == nil {
				done, err = r.confirm(ctx)
			}
			if err != nil {
				yield(events.Recorded{}, err)
			}
			if done || err != nil {
				return
			}
		}
	}
}

// confirm reports whether a read that reached its end is complete. The server answers every failure of its store as if
// there was no event, and the stream may have been replaced since the read began.
func (r *sessionRead) confirm(ctx context.Context) (bool, error) {
	if r.sure {
		return r.same(ctx)
	}
	last := r.mustReach
	if last == 0 && r.after > 0 {
		var err error
		if last, err = r.log.lastOf(ctx, r.p, r.subject); err != nil {
			return false, err
		}
	}
	if last > 0 && last <= r.after {
		return r.same(ctx) // the caller has the session's newest event
	}
	n, err := r.log.count(ctx, r.p, r.subject)
	switch {
	case err != nil || n == 0 && !r.log.cfg.Outside:
		return true, err
	case n == 0: // another stream may lack the events
		return true, r.log.same(ctx, r.p)
	}
	if r.doubted++; r.doubted == doubts {
		return false, fmt.Errorf("read session: %w", r.p.withheld())
	}
	r.lacking = false
	return false, r.leaderFirst(ctx)
}

// same ends a read. If the read returned events, same checks that they came from the stream that this process has read.
func (r *sessionRead) same(ctx context.Context) (bool, error) {
	if !r.found {
		return true, nil
	}
	return true, r.log.same(ctx, r.p)
}

// same fails unless the stream is still the one that this process has read. All waiting calls share one question.
func (l *Log) same(ctx context.Context, p *partition) error {
	if _, err := p.streamBarrier.Wait(ctx); err != nil {
		return Unavailable("is the stream the same", err)
	}
	return nil
}

// sessionRead is the state of one read of a subject.
type sessionRead struct {
	log         *Log
	p           *partition
	subject     string
	after, upTo uint64
	pace        pace
	// mustReach is the session's last sequence that the leader knew of. If a replica's events end before it, the
	// replica is behind, and the rest is read from the leader.
	mustReach uint64
	// askedLeader: mustReach is known. lacking: a replica's events ended before mustReach. contradicted counts the
	// reads from the leader that also ended before it.
	askedLeader, lacking bool
	contradicted         int
	// found: an event was read, or was seen after upTo. sure: the answer that held it also said that nothing follows.
	// An answer without events proves nothing, since a failing store looks the same. doubted counts the ends that the
	// server's own index contradicted.
	found, sure bool
	doubted     int
	// size of the last page of a read that ends before the subject does.
	size int
}

const (
	// pageSize bounds the number of events in one answer, pageBytes roughly their bytes.
	pageSize  = 512
	pageBytes = 4 << 20
	// leastPage is the size of the first page of a read that ends before the subject does. The server knows no end: it
	// sends a page of events in any case. So the pages grow with what the read has found.
	leastPage = 64
	// replicaDeadline bounds the wait for one of several replicas. To read a session from the disk takes up to 300 ms.
	replicaDeadline = readDeadline / 4
)

// leaderFirst asks the leader which sequence the read must reach. A leader that was deposed without knowing it answers
// too; the barrier's request, which follows, finds that out.
func (r *sessionRead) leaderFirst(ctx context.Context) (err error) {
	if !r.p.shared.Load() && !r.p.mirrored.Load() {
		return nil
	}
	r.askedLeader = true
	if r.mustReach, err = r.log.lastOf(ctx, r.p, r.subject); err != nil {
		return err
	}
	if _, err := r.p.barrier.Wait(ctx); err != nil {
		return Unavailable("read session", err)
	}
	return nil
}

// page returns the next events, and reports whether they are the last.
func (r *sessionRead) page(ctx context.Context) ([]events.Recorded, bool, error) {
	if r.after >= r.upTo {
		r.sure = r.found
		return nil, true, nil
	}
	page, end, err := r.read(ctx)
	if err != nil {
		return nil, false, Unavailable("read session", err)
	}
	r.sure = len(page) > 0
	if n := len(page); n > 0 {
		r.found, r.doubted = true, 0
		r.after = page[n-1].Position.Seq
		if err := r.p.durable(ctx, page); err != nil {
			return nil, false, err
		}
	}
	done, err := r.over(ctx, end)
	return page, done, err
}

// over reports whether the read is complete after a page with the given end.
func (r *sessionRead) over(ctx context.Context, end pageEnd) (bool, error) {
	switch {
	case end == beyond:
		r.found, r.sure = true, true
		return true, nil
	case r.after >= r.mustReach && (end == ended || r.lacking):
		return true, nil
	case end == more:
		return false, nil
	case r.lacking:
		// The leader lacks an event that it had. Either the event was erased meanwhile, or another server now takes
		// itself for the leader. So the read asks the leader again.
		r.contradicted++
		err := r.leaderFirst(ctx)
		if err == nil && r.after < r.mustReach && r.contradicted == 3 {
			err = fmt.Errorf("read session: %w: its servers contradict each other", ErrUnavailable)
		}
		return r.after >= r.mustReach, err
	}
	r.lacking = true
	return false, nil
}

// read returns the next events from any replica. Once a replica has turned out to lack an event, read returns the next
// single event from the leader. Direct get can't return an event whose header can't be parsed, so that event is read
// from the leader too.
func (r *sessionRead) read(ctx context.Context) ([]events.Recorded, pageEnd, error) {
	if r.lacking {
		return r.single(ctx)
	}
	if r.pace == steps && !r.p.shared.Load() && !r.p.mirrored.Load() {
		if e, found := r.step(ctx); found && e.Position.Seq > r.upTo {
			return nil, beyond, nil
		} else if found {
			return []events.Recorded{e}, more, nil
		}
	}
	page, end, err := r.ask(ctx)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		if r.p.shared.Load() {
			// The replica can't be reached, and the server that we are connected to does not know it yet.
			r.lacking = true
			return r.single(ctx)
		}
		// A server that has just restarted may have dropped the request.
		page, end, err = r.ask(ctx)
	}
	switch {
	case errors.Is(err, errMirror):
		r.lacking = true
		if err := r.leaderFirst(ctx); err != nil {
			return nil, ended, err
		}
		return r.single(ctx)
	case errors.Is(err, errUnreadable) && len(page) > 0:
		return page, more, nil
	case errors.Is(err, errUnreadable):
		return r.single(ctx)
	}
	return page, end, err
}

func (r *sessionRead) ask(ctx context.Context) ([]events.Recorded, pageEnd, error) {
	limit := readDeadline
	if r.p.shared.Load() {
		limit = replicaDeadline
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	n := pageSize
	if r.upTo != math.MaxUint64 {
		r.size = min(max(leastPage, 2*r.size), pageSize)
		n = int(min(uint64(r.size), r.upTo-r.after)) //nolint:gosec // at most a page
	}
	return page(ctx, r.log.reads, r.p, r.subject, r.after+1, r.upTo, n)
}

// single reads the next event from the leader.
func (r *sessionRead) single(ctx context.Context) ([]events.Recorded, pageEnd, error) {
	m, err := r.log.message(ctx, r.p, map[string]any{"seq": r.after + 1, "next_by_subj": r.subject})
	switch {
	case err != nil || m == nil:
		return nil, ended, err
	case m.Seq > r.upTo:
		return nil, beyond, nil
	}
	return []events.Recorded{m.Recorded(r.p.number)}, more, nil
}

// message asks the leader of a partition for one message, nil where there is none.
func (l *Log) message(ctx context.Context, p *partition, request map[string]any) (*wire.Stored, error) {
	return l.wire.Message(ctx, p.name, request)
}
