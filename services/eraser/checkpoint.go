package eraser

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
)

// stored is a partition's progress as the notes hold it.
type stored struct {
	Created time.Time `json:"created"`
	Seq     uint64    `json:"seq"`
	Epoch   uint64    `json:"epoch"`
}

// part is one partition.
type part struct {
	frontier
	number int

	saving   sync.Mutex
	held     stored
	revision uint64 // 0 where this process does not hold the partition
}

func (p *part) key() string { return fmt.Sprintf("eraser.at.%d", p.number) }

// Claim implements projections.Projection.
func (e *Eraser) Claim(ctx context.Context, partition int) (projections.Checkpoint, error) {
	p := e.parts[partition]
	p.saving.Lock()
	defer p.saving.Unlock()
	var s stored
	revision, err := e.notes.Read(ctx, p.key(), &s)
	if err != nil {
		return projections.Checkpoint{}, err
	}
	if !s.Created.Equal(e.log.Created(partition)) {
		// A log that was made anew has nothing done yet.
		s.Created, s.Seq = e.log.Created(partition), 0
	}
	s.Epoch++
	p.revision = 0
	if revision, err = e.notes.Write(ctx, p.key(), s, revision); err != nil {
		return projections.Checkpoint{}, err
	}
	p.held, p.revision = s, revision
	// What this process has done since it stored that is done.
	return projections.Checkpoint{Partition: partition, Created: s.Created, Seq: max(s.Seq, p.done()), Epoch: s.Epoch}, nil
}

// save stores the progress of a partition that this process holds.
func (e *Eraser) save(ctx context.Context, p *part) error {
	at := p.done()
	p.saving.Lock()
	defer p.saving.Unlock()
	if p.revision == 0 || at <= p.held.Seq {
		return nil
	}
	next := p.held
	next.Seq = at
	revision, err := e.notes.Write(ctx, p.key(), next, p.revision)
	switch {
	case errors.Is(err, jetlog.ErrConflict):
		// Another eraser has claimed it; its epoch counts.
		p.revision = 0
		return nil
	case err != nil:
		return err
	}
	p.held, p.revision = next, revision
	return nil
}

func (p *part) lost() bool {
	p.saving.Lock()
	defer p.saving.Unlock()
	return p.revision == 0
}

// Applied tells up to where all is erased, whoever did it; what this process has only
// looked at does not count.
func (e *Eraser) Applied(ctx context.Context, partition int) (events.Position, error) {
	return appliedOf(ctx, e.log, e.notes, partition)
}

func appliedOf(ctx context.Context, log Log, notes *jetlog.Notes, partition int) (events.Position, error) {
	var s stored
	p := part{number: partition}
	_, err := notes.Read(ctx, p.key(), &s)
	if err != nil || !s.Created.Equal(log.Created(partition)) {
		return events.Position{Partition: partition}, err
	}
	return events.Position{Partition: partition, Seq: s.Seq}, nil
}
