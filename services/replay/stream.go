package replay

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
)

// stream is one reading of the log. For one reader.
//
// What is in the log when the reading begins comes first, in the order of each
// partition and the partitions merged by recorded time. What a follower is given
// after that comes as it arrives, in the order of each partition.
type stream struct {
	replay *Replay
	q      services.EventQuery
	linked map[string]bool // sessions of q.IdentityID

	from, at, end events.Cursor
	merge         merge
	live          *live

	waiting entry // taken, and not printed yet
	taken   bool
	buf     []byte
	out     []services.Event
}

// From is where the reading begins: after that.
func (s *stream) From() events.Cursor { return s.from }

// End is where the log ended, or the query ends, when the reading began.
func (s *stream) End() events.Cursor { return s.end }

// Position is how far the reading is, what it left out included: a reading from there
// goes on after what Next gave.
func (s *stream) Position() events.Cursor { return s.at }

// Bounds of what one Next gives.
const (
	batchEvents = 512
	batchBytes  = 256 << 10
	// lookEvery is after how many events that nobody wants Next looks at ctx.
	lookEvery = 1024
)

// Next gives the next events, at least one. It blocks until there are some or ctx
// ends, and can be called again after that. io.EOF is the end, and only that.
func (s *stream) Next(ctx context.Context) ([]services.Event, error) {
	s.out, s.buf = s.out[:0], s.buf[:0]
	for passed := 1; len(s.out) < batchEvents && len(s.buf) < batchBytes; passed++ {
		if passed%lookEvery == 0 && ctx.Err() != nil {
			return s.given(ctx.Err())
		}
		// A follower is given what there is.
		if s.live != nil && len(s.out) > 0 && !s.live.ready() {
			break
		}
		if err := s.step(ctx); err != nil {
			return s.given(err)
		}
	}
	return s.given(nil)
}

// given gives what was found, and an error only where nothing was; the next call
// meets it again.
func (s *stream) given(err error) ([]services.Event, error) {
	if len(s.out) > 0 {
		return s.out, nil
	}
	return nil, err
}

// step takes one event and prints it, if it is wanted.
func (s *stream) step(ctx context.Context) error {
	if !s.taken {
		e, err := s.take(ctx)
		if err != nil {
			return err
		}
		s.waiting, s.taken = e, true
	}
	e := &s.waiting
	if err := s.replay.redactions.reached(ctx, e.position()); err != nil {
		return err
	}
	if err := s.join(ctx, e); err != nil {
		return err
	}
	s.taken = false
	if s.wants(e) {
		from := len(s.buf)
		s.buf = appendEvent(s.buf, e.recorded(), s.replay.redactions)
		s.out = append(s.out, services.Event{Position: e.position(), JSON: s.buf[from:len(s.buf):len(s.buf)]})
	}
	s.at.Pass(e.position())
	return nil
}

// errLater: what comes now may take long, and what was found is given first.
var errLater = errors.New("later")

// take gives the next event of the backlog, then of what comes.
func (s *stream) take(ctx context.Context) (entry, error) {
	if s.live == nil {
		e, found, err := s.merge.next(ctx)
		if err != nil || found {
			return e, err
		}
		for k, end := range s.end {
			s.at.Pass(events.Position{Partition: k, Seq: end})
		}
		if !s.q.Follow {
			return entry{}, io.EOF
		}
		s.live = s.goLive(ctx)
		if len(s.out) > 0 {
			return entry{}, errLater
		}
	}
	return s.live.next(ctx)
}

// join takes note of a session that is linked to the identity while it is followed.
// It is read from there on.
func (s *stream) join(ctx context.Context, e *entry) error {
	if s.live == nil || s.q.IdentityID == "" || e.typ() != events.TypeSessionLinked {
		return nil
	}
	f, ok := e.recorded().Fact.(*events.SessionLinked)
	if !ok || f.IdentityID != s.q.IdentityID || s.linked[f.SessionID] {
		return nil
	}
	owner, err := linkOf(ctx, s.replay.log, f.SessionID)
	if err == nil && owner == s.q.IdentityID {
		s.linked[f.SessionID] = true
	}
	return err
}

// wants holds an event against the query by what needs no decoding.
func (s *stream) wants(e *entry) bool {
	if len(s.q.Types) > 0 && !slices.Contains(s.q.Types, e.typ()) {
		return false
	}
	at := e.time()
	if at.Before(s.q.Since) || !s.q.Until.IsZero() && !at.Before(s.q.Until) {
		return false
	}
	if s.q.IdentityID == "" {
		return true
	}
	session, identity, err := events.ParseSubject(e.subject())
	return err == nil && !identity && s.linked[session]
}

// Close ends the reading.
func (s *stream) Close() {
	if s.live != nil {
		s.live.stop()
	}
	s.merge.close()
}

func cloneOf(c events.Cursor) events.Cursor { return maps.Clone(c) }

// entry is an event of either source; it is decoded when it is printed.
type entry struct {
	message jetlog.Message
	decoded *events.Recorded
}

func (e *entry) position() events.Position {
	if e.decoded != nil {
		return e.decoded.Position
	}
	return e.message.Position
}

func (e *entry) time() time.Time {
	if e.decoded != nil {
		return e.decoded.Time
	}
	return e.message.Time
}

func (e *entry) subject() string {
	if e.decoded != nil {
		return e.decoded.Subject
	}
	return e.message.Subject
}

func (e *entry) typ() string {
	if e.decoded != nil {
		return e.decoded.Type
	}
	return e.message.Type()
}

func (e *entry) recorded() *events.Recorded {
	if e.decoded == nil {
		e.decoded = e.message.Decoded()
	}
	return e.decoded
}

// live is what comes from all partitions once the backlog is read.
type live struct {
	in     chan arrival
	ended  chan struct{}
	cancel context.CancelFunc
	pumps  sync.WaitGroup
	failed error
	late   <-chan time.Time
}

type arrival struct {
	entry
	err error
}

// goLive goes on after the backlog with every partition at once.
func (s *stream) goLive(ctx context.Context) *live {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &live{in: make(chan arrival, 64), ended: make(chan struct{}), cancel: cancel}
	if !s.q.Until.IsZero() {
		// The server's clock and the log's may differ a little.
		l.late = time.After(time.Until(s.q.Until) + 2*time.Second)
	}
	for _, p := range s.merge.sources {
		l.pumps.Go(func() { s.pump(ctx, p.follower(), l.in) })
	}
	go func() {
		l.pumps.Wait()
		close(l.ended)
	}()
	return l
}

// pump hands on what comes in a partition until the query ends there.
func (s *stream) pump(ctx context.Context, b *backlog, out chan<- arrival) {
	to, bounded := boundOf(s.q.To, b.partition)
	for {
		if bounded && b.after >= to {
			return
		}
		err := b.wait(ctx, bounded)
		if bounded && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			switch over, fault := s.passed(ctx, b, to); {
			case over:
				return
			case fault == nil:
				continue
			default:
				err = fault
			}
		}
		var a arrival
		if a.err = err; err == nil {
			a.message = b.take()
			m := a.message
			if bounded && m.Position.Seq > to || !s.q.Until.IsZero() && !m.Time.Before(s.q.Until) {
				return
			}
		}
		select {
		case out <- a:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// passed tells whether the log is beyond a sequence and has nothing up to there that is still to come: what stands
// there may be another session's, or erased.
func (s *stream) passed(ctx context.Context, b *backlog, to uint64) (bool, error) {
	head, err := b.log.Head(ctx, b.partition)
	if err != nil || head.Seq < to {
		return false, err
	}
	if s.q.SessionID == "" {
		return b.log.Still(ctx, b.partition, b.after, to)
	}
	last, err := b.log.Last(ctx, s.q.SessionID)
	return err == nil && last <= b.after, err
}

func (l *live) ready() bool { return len(l.in) > 0 }

func (l *live) next(ctx context.Context) (entry, error) {
	if l.failed != nil {
		return entry{}, l.failed
	}
	select {
	case a := <-l.in:
		l.failed = a.err
		return a.entry, a.err
	case <-ctx.Done():
		return entry{}, ctx.Err()
	case <-l.late:
		l.failed = io.EOF
	case <-l.ended:
		// What was on its way when the last pump ended.
		select {
		case a := <-l.in:
			l.failed = a.err
			return a.entry, a.err
		default:
			l.failed = io.EOF
		}
	}
	return entry{}, l.failed
}

func (l *live) stop() {
	l.cancel()
	l.pumps.Wait()
}
