package replay

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
)

// stream is one reading of the log, for one reader.
//
// First come the events that were in the log when the reading began: each partition in its order, and the partitions
// merged by recorded time. For a follower, later events come as they arrive, each partition in its order.
type stream struct {
	log        *jetlog.Log
	redactions *redactions
	q          services.EventQuery
	linked     map[string]string // sessions that are linked to q.IdentityID, with the root of each branch

	from, at, end events.Cursor
	partitions    []*backlog
	live          *live

	waiting jetlog.Message // taken from live, but not printed yet
	taken   bool
	buf     []byte
	out     []services.Event
}

// From returns the cursor after which the reading begins.
func (s *stream) From() events.Cursor { return s.from }

// End returns the log's end when the reading began, or the query's end if that is earlier.
func (s *stream) End() events.Cursor { return s.end }

// Position returns how far the reading is, including events that the query left out. A reading that begins there
// continues after the last event that Next returned.
func (s *stream) Position() events.Cursor { return s.at }

// Bounds of one call of Next.
const (
	batchEvents = 512
	batchBytes  = 256 << 10
	// lookEvery is the number of left-out events after which Next checks ctx.
	lookEvery = 1024
)

// Next returns the next events, at least one. It blocks until there are some or ctx ends; after that it can be called
// again. It returns io.EOF at the end, and only there.
func (s *stream) Next(ctx context.Context) (_ []services.Event, err error) {
	s.out, s.buf = s.out[:0], s.buf[:0]
	for passed := 1; err == nil && len(s.out) < batchEvents && len(s.buf) < batchBytes; passed++ {
		// A follower gets the events at hand without waiting for more.
		if s.live != nil && len(s.out) > 0 && !s.live.ready() {
			break
		}
		if passed%lookEvery == 0 {
			err = ctx.Err()
		}
		if err == nil {
			err = s.step(ctx)
		}
	}
	if len(s.out) > 0 {
		return s.out, nil // the next call meets the error again
	}
	return nil, err
}

// step takes one event and prints it, if the query wants it.
func (s *stream) step(ctx context.Context) error {
	if !s.taken {
		m, err := s.take(ctx)
		if err != nil {
			return err
		}
		s.waiting, s.taken = m, true
	}
	m := &s.waiting
	if err := s.redactions.owners.Reached(ctx, m.Position); err != nil {
		return err
	}
	if err := s.join(ctx, m); err != nil {
		return err
	}
	s.taken = false
	if s.wants(m) {
		from := len(s.buf)
		s.buf = appendEvent(s.buf, m.Decoded(), s.redactions)
		s.out = append(s.out, services.Event{Position: m.Position, JSON: s.buf[from:len(s.buf):len(s.buf)]})
	}
	s.at.Pass(m.Position)
	return nil
}

// errLater: the next event may take long, so Next first returns the events that it has.
var errLater = errors.New("later")

// take returns the next event of the backlog, or after the backlog the next live event.
func (s *stream) take(ctx context.Context) (jetlog.Message, error) {
	if s.live != nil {
		return s.live.next(ctx)
	}
	first, err := s.earliest(ctx)
	switch {
	case err != nil:
		return jetlog.Message{}, err
	case first != nil:
		return first.take(), nil
	}
	for k, end := range s.end {
		s.at.Pass(events.Position{Partition: k, Seq: end})
	}
	if !s.q.Follow {
		return jetlog.Message{}, io.EOF
	}
	for _, b := range s.partitions {
		b.after = max(b.after, b.end)
	}
	s.live = goLive(ctx, s.redactions.owners.Follower(), s.q, s.partitions)
	if len(s.out) > 0 {
		return jetlog.Message{}, errLater
	}
	return s.live.next(ctx)
}

// earliest returns the partition whose next event was recorded first, or nil at the end of the backlog. Within a
// partition the log's order counts, whatever its clock did.
func (s *stream) earliest(ctx context.Context) (first *backlog, err error) {
	for _, b := range s.partitions {
		more, err := b.more(ctx)
		if err != nil {
			return nil, err
		}
		if more && (first == nil || b.ready[0].Time.Before(first.ready[0].Time)) {
			first = b
		}
	}
	return first, nil
}

// join adds a session that is linked to the query's identity while the reading follows that identity. The stream shows
// the session's events from the link on.
func (s *stream) join(ctx context.Context, m *jetlog.Message) error {
	if s.live == nil || s.q.IdentityID == "" || m.Type() != events.TypeSessionLinked {
		return nil
	}
	f, ok := m.Decoded().Fact.(*events.SessionLinked)
	if !ok || f.IdentityID != s.q.IdentityID {
		return nil
	}
	linked, err := upToLink(ctx, s.log, f.SessionID)
	if err == nil && linked.Identity == s.q.IdentityID {
		s.linked[f.SessionID] = linked.Fork().Root
	}
	return err
}

// wants reports whether the query wants an event. It looks only at what needs no decoding.
func (s *stream) wants(m *jetlog.Message) bool {
	if len(s.q.Types) > 0 && !slices.Contains(s.q.Types, m.Type()) {
		return false
	}
	if m.Time.Before(s.q.Since) || !s.q.Until.IsZero() && !m.Time.Before(s.q.Until) {
		return false
	}
	if s.q.IdentityID == "" {
		return true
	}
	id, identity, err := events.ParseSubject(m.Subject)
	if err != nil || identity {
		return err == nil && s.q.Own == services.WithOwn && id == s.q.IdentityID
	}
	root, linked := s.linked[id]
	return linked && !s.redactions.covers(root) // a branch without its root has no identity
}

// Close ends the reading.
func (s *stream) Close() {
	if s.live != nil {
		s.live.stop()
	}
	for _, b := range s.partitions {
		b.close()
	}
}
