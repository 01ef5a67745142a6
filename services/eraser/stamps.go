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

// stamp is what the notes keep of a redaction in one place; the note's own time says when. Erased counts events of the
// log: all that there are to erase when the erasure begins, so that a crash in between does not change the count. While
// the stamp is Open they are not all gone.
type stamp struct {
	Created time.Time `json:"created"`
	Place   string    `json:"place"`
	Erased  *int      `json:"erased,omitempty"`
	Open    bool      `json:"open,omitempty"`
}

func stampsOf(at events.Position) string {
	return fmt.Sprintf("eraser.redacted.%d.%d.", at.Partition, at.Seq)
}

// stamp notes that a redaction has reached a place, or that it begins there; the first time of each stands.
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

// stamped says of the places of a redaction's receipt when they were reached. The log is done when the eraser has said
// so, since it leaves what it must not take out.
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
