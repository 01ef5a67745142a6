package replay

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/feed"
	"github.com/turnledger/turnledger/projections/follower"
	"github.com/turnledger/turnledger/services"
)

// live delivers the events of all partitions that come after the backlog.
type live struct {
	query   services.EventQuery
	in      chan arrival
	cancel  context.CancelFunc
	pumps   sync.WaitGroup
	failed  error
	overdue <-chan time.Time
}

type arrival struct {
	jetlog.Message
	err error
}

// goLive goes on after the backlog with every partition at once.
func goLive(
	ctx context.Context, f *follower.Follower, q services.EventQuery, partitions []*backlog,
) *live {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &live{query: q, in: make(chan arrival, 64), cancel: cancel}
	if !q.Until.IsZero() {
		// The server's clock and the log's may differ a little.
		l.overdue = time.After(time.Until(q.Until) + 2*time.Second)
	}
	for _, b := range partitions {
		b.goLive(f)
		l.pumps.Go(func() { l.pump(ctx, b) })
	}
	go func() {
		l.pumps.Wait()
		close(l.in)
	}()
	return l
}

// pump forwards the events of a partition until the query ends there or an error occurs.
func (l *live) pump(ctx context.Context, b *backlog) {
	to, bounded := boundOf(l.query.To, b.partition)
	if !bounded {
		to = feed.NoEnd
	}
	for b.after < to {
		var a arrival
		if len(b.ready) == 0 {
			if a.err = b.read(ctx, to); a.err == nil && len(b.ready) == 0 {
				return
			}
		}
		if a.err == nil {
			a.Message = b.take()
			if !l.query.Until.IsZero() && !a.Time.Before(l.query.Until) {
				return
			}
		}
		select {
		case l.in <- a:
		case <-ctx.Done():
			return
		}
		if a.err != nil {
			return
		}
	}
}

// ready reports whether next has an event without waiting.
func (l *live) ready() bool { return len(l.in) > 0 }

func (l *live) next(ctx context.Context) (jetlog.Message, error) {
	if l.failed != nil {
		return jetlog.Message{}, l.failed
	}
	select {
	case a, open := <-l.in:
		if l.failed = a.err; !open {
			l.failed = io.EOF
		}
		return a.Message, l.failed
	case <-ctx.Done():
		return jetlog.Message{}, ctx.Err()
	case <-l.overdue:
		l.failed = io.EOF
		return jetlog.Message{}, io.EOF
	}
}

func (l *live) stop() {
	l.cancel()
	l.pumps.Wait()
}
