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

// progress is how far something is in a partition, as the notes hold it. The eraser keeps two: up to where everything
// is done, and up to where the pieces of the index reach without a gap. Both are true whichever eraser writes them, so
// that no eraser needs to be fenced: two erasers of one partition do the same work twice, and the higher progress
// stands.
type progress struct {
	Created time.Time `json:"created"`
	Seq     uint64    `json:"seq"`
	// Revision is that of the last piece written: a reader that does not see that piece reads from a replica that is
	// behind.
	Revision uint64 `json:"revision,omitempty"`
}

func doneKey(partition int) string    { return fmt.Sprintf("eraser.at.%d", partition) }
func coveredKey(partition int) string { return fmt.Sprintf("eraser.linked.%d", partition) }

// progressOf reads a progress. In a log that was made anew it is at the beginning.
func progressOf(
	ctx context.Context, notes *jetlog.Notes, key string, created time.Time,
) (p progress, revision uint64, err error) {
	revision, err = notes.Read(ctx, key, &p)
	if err != nil || !p.Created.Equal(created) {
		p = progress{Created: created}
	}
	return p, revision, err
}

// raise moves a progress on, if what was done after a sequence leaves no gap behind it.
func raise(ctx context.Context, notes *jetlog.Notes, key string, after uint64, to progress) error {
	for {
		p, revision, err := progressOf(ctx, notes, key, to.Created)
		if err != nil || after > p.Seq || to.Seq <= p.Seq {
			return err
		}
		to.Revision = max(to.Revision, p.Revision)
		if _, err = notes.Write(ctx, key, to, revision); !errors.Is(err, jetlog.ErrConflict) {
			return err
		}
	}
}

// part is one partition.
type part struct {
	frontier
	links  links
	number int
	saved  uint64 // for the goroutine that saves
}

// done returns up to where the notes say that everything is done, whoever did it.
func (e *Eraser) done(ctx context.Context, partition int) (progress, error) {
	p, _, err := progressOf(ctx, e.notes, doneKey(partition), e.log.Created(partition))
	return p, err
}

// Resume implements projections.Task. The eraser looks again at what is done where the index of links lacks it.
func (e *Eraser) Resume(ctx context.Context, partition int) (projections.Checkpoint, error) {
	noted, err := e.done(ctx, partition)
	if err != nil {
		return projections.Checkpoint{}, err
	}
	p := e.parts[partition]
	covered, _, err := progressOf(ctx, e.notes, coveredKey(partition), noted.Created)
	reach, _ := p.links.reach(covered)
	if err == nil {
		err = e.finishNoted(ctx, partition)
	}
	// What this process has done since it stored that is done.
	at := min(max(noted.Seq, p.done()), reach)
	return projections.Checkpoint{Partition: partition, Created: noted.Created, Seq: at}, err
}

// save stores the progress of a partition.
func (e *Eraser) save(ctx context.Context, p *part) error {
	at := p.done()
	if at <= p.saved {
		return nil
	}
	err := raise(ctx, e.notes, doneKey(p.number), 0, progress{Created: e.log.Created(p.number), Seq: at})
	if err == nil {
		p.saved = at
	}
	return err
}

// Applied implements projections.Task: up to where all is erased, whoever did it; what this process has only
// looked at does not count.
func (e *Eraser) Applied(ctx context.Context, partition int) (events.Position, error) {
	p, err := e.done(ctx, partition)
	return events.Position{Partition: partition, Seq: p.Seq}, err
}

// frontier knows up to where everything in a partition is done: events are looked at in order, and the work that some
// of them ask for is done in any order.
type frontier struct {
	mu     sync.Mutex
	looked uint64
	open   map[uint64]bool
}

// begin notes that an event asks for work, and reports whether that is new.
func (f *frontier) begin(seq uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[seq] {
		return false
	}
	if f.open == nil {
		f.open = map[uint64]bool{}
	}
	f.open[seq] = true
	return true
}

// end notes that the work is done.
func (f *frontier) end(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, seq)
}

// pass notes that all up to seq was looked at.
func (f *frontier) pass(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked = max(f.looked, seq)
}

// done returns the sequence up to which nothing is left to do.
func (f *frontier) done() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.looked
	for seq := range f.open {
		at = min(at, seq-1)
	}
	return at
}
