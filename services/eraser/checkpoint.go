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

// progress is the sequence of a partition up to which all erasing is done, as the notes hold it. It is true whichever
// eraser wrote it, so erasers need no fencing: two erasers of one partition do the same work twice, and the higher
// progress stays.
type progress struct {
	Created time.Time `json:"created"`
	Seq     uint64    `json:"seq"`
	// Erased is the sequence up to which the log holds nothing more of what was erased. The places of receipts may
	// still have to follow.
	Erased uint64 `json:"erased,omitempty"`
	// Looked is the sequence up to which an eraser has looked for work.
	Looked uint64 `json:"looked,omitempty"`
	// Held are sessions that a retention has to look at again.
	Held []string `json:"held,omitempty"`
}

func doneKey(partition int) string { return fmt.Sprintf("eraser.at.%d", partition) }

// progressOf reads a progress. If the log was made anew since, the progress is at the beginning.
func progressOf(
	ctx context.Context, notes *jetlog.Notes, key string, created time.Time,
) (p progress, revision uint64, err error) {
	revision, err = notes.Read(ctx, key, &p)
	if err != nil || !p.Created.Equal(created) {
		p = progress{Created: created}
	}
	return p, revision, err
}

// Forgotten returns the position of a partition up to which the log holds nothing more of what was erased, by the
// eraser of any process. The places of receipts may still have to follow.
func Forgotten(ctx context.Context, log Reader, notes *jetlog.Notes, partition int) (events.Position, error) {
	p, _, err := progressOf(ctx, notes, doneKey(partition), log.Created(partition))
	return events.Position{Partition: partition, Seq: max(p.Seq, p.Erased)}, err
}

// part is the state of one partition.
type part struct {
	frontier
	number int
	saved  progress // used only by the goroutine that saves
}

// done returns the progress that the notes hold, whichever eraser wrote it.
func (e *Eraser) done(ctx context.Context, partition int) (progress, error) {
	p, _, err := progressOf(ctx, e.notes, doneKey(partition), e.log.Created(partition))
	return p, err
}

// Resume implements projections.Task.
func (e *Eraser) Resume(ctx context.Context, partition int) (projections.Checkpoint, error) {
	noted, err := e.done(ctx, partition)
	if err != nil {
		return projections.Checkpoint{}, err
	}
	// This process may have done more than it has stored.
	at := max(noted.Seq, e.parts[partition].progress().Seq)
	return projections.Checkpoint{Partition: partition, Created: noted.Created, Seq: at}, e.finishNoted(ctx, partition)
}

// save stores the progress of a partition, unless another eraser has come further.
func (e *Eraser) save(ctx context.Context, p *part) error {
	key, to := doneKey(p.number), p.progress()
	to.Created = e.log.Created(p.number)
	for to.beyond(p.saved) {
		noted, revision, err := progressOf(ctx, e.notes, key, to.Created)
		if err == nil && to.beyond(noted) {
			to.Seq, to.Erased = max(to.Seq, noted.Seq), max(to.Erased, noted.Erased)
			to.Looked = max(to.Looked, noted.Looked)
			_, err = e.notes.Write(ctx, key, to, revision)
		}
		switch {
		case err == nil:
			p.saved = to
		case !errors.Is(err, jetlog.ErrConflict):
			return err
		}
	}
	return nil
}

// beyond reports whether a progress is beyond another in anything.
func (p progress) beyond(other progress) bool {
	return p.Seq > other.Seq || p.Erased > other.Erased || p.Looked > other.Looked
}

// Applied implements projections.Task. It returns the position up to which an eraser has looked for work.
func (e *Eraser) Applied(ctx context.Context, partition int) (events.Position, error) {
	p, err := e.done(ctx, partition)
	return events.Position{Partition: partition, Seq: max(p.Seq, p.Looked)}, err
}

// frontier tracks the sequence of a partition up to which everything is done. Events are looked at in order, while the
// work that they ask for is done in any order.
type frontier struct {
	mu     sync.Mutex
	looked uint64
	// open has the events whose work is not done. The value is whether the log still holds what must go.
	open map[uint64]bool
}

// begin notes that an event asks for work, and reports whether that is new.
func (f *frontier) begin(seq uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.open[seq]; known {
		return false
	}
	if f.open == nil {
		f.open = map[uint64]bool{}
	}
	f.open[seq] = true
	return true
}

// forget notes that the log no longer holds what an event erases.
func (f *frontier) forget(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[seq] = false
}

// end notes that the work for an event is done.
func (f *frontier) end(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, seq)
}

// pass notes that all events up to seq were looked at.
func (f *frontier) pass(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked = max(f.looked, seq)
}

// progress returns the sequences up to which nothing is left to do, up to which the log holds nothing more of what was
// erased, and up to which it was looked at.
func (f *frontier) progress() progress {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := progress{Seq: f.looked, Erased: f.looked, Looked: f.looked}
	for seq, held := range f.open {
		p.Seq = min(p.Seq, seq-1)
		if held {
			p.Erased = min(p.Erased, seq-1)
		}
	}
	return p
}
