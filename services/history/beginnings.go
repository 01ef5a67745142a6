package history

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// beginnings are the sessions that calls have begun in the last ten minutes, in this process or another one. A client
// that repeats such a call does not know the session's id. Safe for concurrent use.
type beginnings struct {
	held *otter.Cache[string, beginning]
	// older is true once those from before this process began are held, too.
	mu    sync.Mutex
	older bool
}

type beginning struct {
	sessionID string
	time      time.Time
}

// mostBeginnings bounds the sessions that are held.
const mostBeginnings = 100_000

func newBeginnings() *beginnings {
	return &beginnings{held: otter.Must(&otter.Options[string, beginning]{
		MaximumSize: mostBeginnings, ExpiryCalculator: otter.ExpiryWriting[string, beginning](repeatTime),
		Executor: func(work func()) { work() },
	})}
}

// note holds the session that an event describes, if a call has begun it so, and no newer one is held: partitions are
// read one after the other.
func (b *beginnings) note(sessionID string, m *jetlog.Message) {
	call := m.Call()
	if call == "" || m.Type() != events.TypeSessionDescribed {
		return
	}
	if c, called := parseCall(call); called {
		b.held.Compute(strings.Clone(c.call), func(held beginning, found bool) (beginning, otter.ComputeOp) {
			if found && held.time.After(m.Time) {
				return held, otter.CancelOp
			}
			return beginning{sessionID, m.Time}, otter.WriteOp
		})
	}
}

// of returns the session that a call has begun last, if that was lately; else "". It knows all that the log holds now.
func (b *beginnings) of(ctx context.Context, s *Service, call string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range s.log.Partitions() {
		w := &writing{Service: s, partition: p}
		if err := w.following(ctx); err != nil {
			return "", err
		}
		head, err := w.refresh(ctx)
		if err == nil && !b.older {
			err = b.read(ctx, w, head)
		}
		if err != nil {
			return "", err
		}
	}
	b.older = true
	found, held := b.held.GetIfPresent(call)
	if !held || time.Since(found.time) > repeatTime {
		return "", nil
	}
	return found.sessionID, nil
}

// read notes what a partition holds of the last ten minutes, up to its head.
func (b *beginnings) read(ctx context.Context, w *writing, head uint64) error {
	after, err := w.log.SeqAt(ctx, w.partition, time.Now().Add(-repeatTime))
	if err != nil || after >= head {
		return err
	}
	from := events.Position{Partition: w.partition, Seq: after}
	for batch, err := range jetlog.Between(ctx, w.log, from, head, jetlog.TailOptions{HeadersOnly: true}) {
		if err != nil {
			return errors.Join(jetlog.ErrUnavailable, err)
		}
		for i := range batch {
			if id, identity, err := events.ParseSubject(batch[i].Subject); err == nil && !identity {
				b.note(id, &batch[i])
			}
		}
	}
	return nil
}
