package eraser

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
)

// stored is a partition's progress as the notes hold it: all up to Seq is done. That is
// true whoever says so, so that nobody needs to be fenced: two erasers of one partition
// do the same twice, and the higher progress stands.
type stored struct {
	Created time.Time `json:"created"`
	Seq     uint64    `json:"seq"`
}

// part is one partition.
type part struct {
	frontier
	links  links
	number int
	saved  uint64 // for the goroutine that saves
}

func progressOf(
	ctx context.Context, log Reader, notes *jetlog.Notes, partition int,
) (s stored, revision uint64, err error) {
	revision, err = notes.Read(ctx, atKey(partition), &s)
	if created := log.Created(partition); err == nil && !s.Created.Equal(created) {
		s = stored{Created: created} // a log that was made anew has nothing done yet
	}
	return s, revision, err
}

func atKey(partition int) string { return fmt.Sprintf("eraser.at.%d", partition) }

// Resume implements projections.Task. The eraser looks again at what is done where
// the index of links lacks it.
func (e *Eraser) Resume(ctx context.Context, partition int) (projections.Checkpoint, error) {
	s, _, err := progressOf(ctx, e.log, e.notes, partition)
	if err != nil {
		return projections.Checkpoint{}, err
	}
	p := e.parts[partition]
	at, _, err := covered(ctx, e.notes, partition, s.Created)
	reach, _ := p.links.reach(at)
	if err == nil {
		err = e.finishNoted(ctx, partition)
	}
	// What this process has done since it stored that is done.
	return projections.Checkpoint{Partition: partition, Created: s.Created, Seq: min(max(s.Seq, p.done()), reach)}, err
}

// save stores the progress of a partition.
func (e *Eraser) save(ctx context.Context, p *part) error {
	at := p.done()
	if at <= p.saved {
		return nil
	}
	s, revision, err := progressOf(ctx, e.log, e.notes, p.number)
	if err != nil {
		return err
	}
	if at > s.Seq {
		s.Seq = at
		if _, err = e.notes.Write(ctx, atKey(p.number), s, revision); errors.Is(err, jetlog.ErrConflict) {
			return nil // the next time
		}
		if err != nil {
			return err
		}
	}
	p.saved = at
	return nil
}

// Applied implements projections.Task: up to where all is erased, whoever did it; what
// this process has only looked at does not count.
func (e *Eraser) Applied(ctx context.Context, partition int) (events.Position, error) {
	s, _, err := progressOf(ctx, e.log, e.notes, partition)
	return events.Position{Partition: partition, Seq: s.Seq}, err
}
