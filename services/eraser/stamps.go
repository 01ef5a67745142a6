package eraser

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
)

// stamp is what the notes keep of a redaction in one place; when, is the note's own
// time. Erased counts events of the log: all that there are to erase when that begins,
// so that a crash in between takes none away. While it is Open they are not all gone.
type stamp struct {
	Created time.Time `json:"created"`
	Place   string    `json:"place"`
	Erased  *int      `json:"erased,omitempty"`
	Open    bool      `json:"open,omitempty"`
}

func stampsOf(at events.Position) string {
	return fmt.Sprintf("eraser.redacted.%d.%d.", at.Partition, at.Seq)
}

// stamp notes that a redaction has reached a place, or that it begins there; the first
// time of each stands.
func (e *Eraser) stamp(ctx context.Context, at events.Position, s stamp) error {
	var old stamp
	key, created := stampsOf(at)+s.Place, e.log.Created(at.Partition)
	revision, err := e.notes.Read(ctx, key, &old)
	switch {
	case err != nil:
		return err
	case revision == 0 || !old.Created.Equal(created): // nothing, or of a log that was there before
	case old.Open && !s.Open:
		s.Erased = old.Erased
	default:
		return nil
	}
	s.Created = created
	_, err = e.notes.Write(ctx, key, s, revision)
	if errors.Is(err, jetlog.ErrConflict) {
		return nil // another eraser was first
	}
	return err
}

// stamper waits for a view and notes what it has reached, one after the other, so that
// however much waits for a view that is down asks for it once.
type stamper struct {
	place  Place
	mu     sync.Mutex
	open   []awaited
	signal chan struct{}
}

// awaited are positions that a view has to reach, how that is noted, and what is told
// then.
type awaited struct {
	at    []events.Position
	write func(context.Context) error
	noted func(context.Context)
}

// await has it noted when each view has reached some positions, and then goes on. It does
// not wait.
func (e *Eraser) await(
	ctx context.Context, at []events.Position, write func(ctx context.Context, place string) error,
	then func(context.Context),
) {
	if len(e.stampers) == 0 {
		then(ctx)
		return
	}
	var left atomic.Int64
	left.Store(int64(len(e.stampers)))
	for _, s := range e.stampers {
		s.push(awaited{
			at:    at,
			write: func(ctx context.Context) error { return write(ctx, s.place.Name()) },
			noted: func(ctx context.Context) {
				if left.Add(-1) == 0 {
					then(ctx)
				}
			},
		})
	}
}

func (s *stamper) push(x awaited) {
	s.mu.Lock()
	s.open = append(s.open, x)
	s.mu.Unlock()
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// run notes until ctx ends.
func (s *stamper) run(ctx context.Context, e *Eraser) error {
	for {
		s.mu.Lock()
		open := s.open
		s.open = nil
		s.mu.Unlock()
		for _, x := range open {
			if err := e.reachPlace(ctx, s.place, x.at, func() error { return x.write(ctx) }); err != nil {
				return nil //nolint:nilerr // ctx has ended
			}
			x.noted(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.signal:
		}
	}
}

// stamped says of the places of a redaction's receipt when they were reached. The log is
// done when the eraser has said so: it leaves what it must not take out.
func (r *Receipts) stamped(ctx context.Context, out *services.Receipt) error {
	return jetlog.EachNote(ctx, r.notes, stampsOf(out.Position)+"*", func(n jetlog.Note[stamp]) {
		if n.Value.Open || !n.Value.Created.Equal(r.log.Created(out.Position.Partition)) {
			return
		}
		for i := range out.Places {
			p := &out.Places[i]
			p.Done = p.Done || p.Place == PlaceLog && n.Value.Place == PlaceLog
			if p.Place == n.Value.Place && p.Done {
				p.At, p.Erased = n.At, n.Value.Erased
			}
		}
	})
}
