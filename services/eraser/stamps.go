package eraser

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
)

// stamp is a note that a redaction has reached a place; the time of the note is the time at which it did. Erased counts
// the events to erase from the log. It is written when the erasure begins, so that a crash does not change the count.
// While the stamp is Open, some of these events are not erased yet, or not proved to be.
type stamp struct {
	Created time.Time `json:"created"`
	Place   string    `json:"place"`
	Erased  *int      `json:"erased,omitempty"`
	Open    bool      `json:"open,omitempty"`
	witness
}

func stampsOf(at events.Position) string {
	return fmt.Sprintf("eraser.redacted.%d.%d.", at.Partition, at.Seq)
}

// stamp notes that a redaction begins in a place, or that it has reached the place. If there is a stamp of the same
// kind already, that stamp stays.
func (e *Eraser) stamp(ctx context.Context, at events.Position, s stamp) error {
	var old stamp
	key, created := stampsOf(at)+s.Place, e.log.Created(at.Partition)
	revision, err := e.notes.Read(ctx, key, &old)
	switch {
	case err != nil:
		return err
	case revision == 0 || !old.Created.Equal(created): // no stamp, or one from an earlier log
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

// openStamps notes, before the events of redactions are overwritten, who the servers are and how many events each has.
func (e *Eraser) openStamps(ctx context.Context, places []events.Position, counts map[uint64]int) error {
	before, err := e.witness(ctx)
	for _, at := range places {
		if n := counts[at.Seq]; n > 0 && err == nil {
			err = e.stamp(ctx, at, stamp{Place: PlaceLog, Erased: &n, Open: true, witness: before})
		}
	}
	return err
}

// proveStamps closes the stamps of the log for redactions whose events are erased, once that is proved.
func (e *Eraser) proveStamps(ctx context.Context, places []events.Position) error {
	now, err := e.nodes(ctx)
	if err != nil {
		return err
	}
	for _, at := range places {
		var open stamp
		key := stampsOf(at) + PlaceLog
		revision, err := e.notes.Read(ctx, key, &open)
		if err != nil {
			return err
		}
		if open.Open && open.Created.Equal(e.log.Created(at.Partition)) {
			note := func(ctx context.Context) error {
				_, err := e.notes.Write(ctx, key, open, revision)
				return err
			}
			if err := e.prove(ctx, now, &open.witness, note); err != nil {
				return err
			}
		}
		if err := e.stamp(ctx, at, stamp{Place: PlaceLog}); err != nil {
			return err
		}
	}
	return nil
}

// stamped fills in when a redaction reached the places of its receipt. The log counts as done once the eraser's stamp
// says so. The events themselves can't show that, since some of them must stay.
func (r *Receipts) stamped(ctx context.Context, out *services.Receipt) error {
	return jetlog.EachNote(ctx, r.notes, stampsOf(out.Position)+"*", func(n jetlog.Note[stamp]) {
		if !n.Value.Created.Equal(r.log.Created(out.Position.Partition)) {
			return
		}
		for i := range out.Places {
			p := &out.Places[i]
			if n.Value.Open {
				if p.Place == n.Value.Place {
					p.Why = n.Value.Why
				}
				continue
			}
			p.Done = p.Done || p.Place == PlaceLog && n.Value.Place == PlaceLog
			if p.Place == n.Value.Place && p.Done {
				p.At, p.Erased = n.At, n.Value.Erased
			}
		}
	})
}
