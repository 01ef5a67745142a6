package eraser_test

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
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

// documents is a long-term memory with a document for each turn.
type documents struct {
	mu   sync.Mutex
	gone map[string][]uuid.UUID
}

func (d *documents) Name() string { return "memory" }

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
