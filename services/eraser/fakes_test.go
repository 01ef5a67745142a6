package eraser_test

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// place is a view that follows when it is told to.
type place struct {
	name string

	mu  sync.Mutex
	at  map[int]uint64
	all bool
}

func (p *place) Name() string { return p.name }

func (p *place) Reached(_ context.Context, at events.Position) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all || p.at[at.Partition] >= at.Seq, nil
}

func (p *place) follow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = true
}

// slow is a view that does not answer until it is told to, and counts who waits for it.
type slow struct {
	place
	answer chan struct{}

	waiting, most atomic.Int64
}

func (p *slow) Reached(ctx context.Context, at events.Position) (bool, error) {
	n := p.waiting.Add(1)
	defer p.waiting.Add(-1)
	for most := p.most.Load(); n > most && !p.most.CompareAndSwap(most, n); most = p.most.Load() {
	}
	select {
	case <-p.answer:
		return p.place.Reached(ctx, at)
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// closedSessions knows how many sessions are closed whose events are not all gone, and
// how many there were at most.
type closedSessions struct {
	Log
	mu        sync.Mutex
	open, max int
}

func (l *closedSessions) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	l.mu.Lock()
	switch f := a.Facts[0].(type) {
	case *events.SessionErased:
		l.open++
		l.max = max(l.max, l.open)
	case *events.ErasureReceipt:
		if f.SessionID != "" {
			l.open--
		}
	case nil, *events.TurnStarted, *events.TurnFinalized, *events.TurnExtended,
		*events.TurnCorrected, *events.TurnPruned, *events.TurnRedacted,
		*events.SessionLinked, *events.LinkRefused, *events.SessionReset, *events.SessionDescribed,
		*events.SessionForked, *events.SessionBranched,
		*events.SessionSummarized,
		*events.IdentityErased:
	}
	l.mu.Unlock()
	return l.Log.Append(ctx, a)
}

// documents is a long-term memory with a document for each turn.
type documents struct {
	mu   sync.Mutex
	gone map[string][]uuid.UUID
}

func (d *documents) DeleteTurns(_ context.Context, _ events.Position, session string, turns []uuid.UUID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone == nil {
		d.gone = map[string][]uuid.UUID{}
	}
	d.gone[session] = turns
	return nil
}

func (d *documents) deleted(session string) []uuid.UUID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone[session]
}

// counted is a log that counts how often each session is read.
type counted struct {
	Log
	mu    sync.Mutex
	reads map[string]int
}

func (l *counted) Session(ctx context.Context, id string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	l.mu.Lock()
	l.reads[id]++
	l.mu.Unlock()
	return l.Log.Session(ctx, id, after, upTo)
}

// forget returns the reads since the last call.
func (l *counted) forget() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	reads := l.reads
	l.reads = map[string]int{}
	return reads
}
