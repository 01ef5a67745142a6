package desk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
)

// letter is a dead letter as it is stored: under its store and generation, with the stream of its position and the
// epoch of the owner that parked the event.
type letter struct {
	projections.DeadLetter
	Created time.Time `json:"stream_created"`
	Epoch   uint64    `json:"epoch"`
}

// letterClaim is the stored claim of a partition's letters: only its runner may write them.
type letterClaim struct {
	Epoch uint64 `json:"epoch"`
}

func generationKey(kind, name, store string, generation uint64) string {
	return key(kind, name, storeKey(store), strconv.FormatUint(generation, 10))
}

func letterKey(name string, of projections.Checkpoint, at events.Position) string {
	where := generationKey("letter", name, of.Store, of.Generation)
	return key(where, strconv.Itoa(at.Partition), strconv.FormatUint(at.Seq, 10))
}

// Claim is the right to park events of a partition.
type Claim struct {
	desk     *Desk
	notes    Notes
	name     string
	at       projections.Checkpoint
	claimKey string
	revision uint64
	// attempts counts earlier attempts at events that a former owner parked but did not pass.
	attempts map[events.Position]int
	// keys of the letters, the oldest first; set after the first letter, if letters are bounded.
	keys []string
}

// ClaimLetters takes over the letters of a claimed checkpoint's partition. It removes letters of events after the
// checkpoint's sequence: the former owner parked these events, and its checkpoint did not pass them. It also removes
// letters of another stream. It fails with ErrFenced if a later claim owns the letters.
func (d *Desk) ClaimLetters(ctx context.Context, name string, cp projections.Checkpoint) (_ *Claim, err error) {
	defer projections.Wrap(&err, "claim the dead letters")
	notes, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	h := &Claim{
		desk: d, notes: notes, name: name, at: cp, attempts: map[events.Position]int{},
		claimKey: key(generationKey("owner", name, cp.Store, cp.Generation), strconv.Itoa(cp.Partition)),
	}
	var have letterClaim
	revision, err := notes.Read(ctx, h.claimKey, &have)
	if err != nil {
		return nil, err
	}
	// A store without an id may have been emptied, and counts its epochs from the beginning again.
	if have.Epoch > cp.Epoch && (cp.Store != "" || cp.Seq > 0) {
		return nil, projections.ErrFenced
	}
	if h.revision, err = notes.Write(ctx, h.claimKey, letterClaim{cp.Epoch}, revision); err != nil {
		return nil, fenced(err)
	}
	found, err := d.letters(ctx, name, cp.Store, cp.Generation, strconv.Itoa(cp.Partition)+".>")
	for _, l := range found {
		if err == nil && (l.Value.Position.Seq > cp.Seq || !sameStream(l.Value.Created, cp.Created)) {
			h.attempts[l.Value.Position] = l.Value.Attempts
			err = notes.Remove(ctx, l.Key, h.claimKey, h.revision)
		}
	}
	return h, fenced(err)
}

// fenced returns ErrFenced if the error means that another claim has written meanwhile.
func fenced(err error) error {
	if errors.Is(err, jetlog.ErrConflict) {
		return projections.ErrFenced
	}
	return err
}

func sameStream(a, b time.Time) bool { return a.IsZero() || b.IsZero() || a.Equal(b) }

// Keep makes the letter of an event durable. If a former owner parked the event before, the letter adds that owner's
// attempts to its own. The letter counts once a checkpoint of the claim has passed the event. Keep fails with ErrFenced
// if another claim owns the letters by now.
func (h *Claim) Keep(ctx context.Context, created time.Time, dead projections.DeadLetter) (err error) {
	dead.Projection = h.name
	dead.Attempts += h.attempts[dead.Position]
	l := letter{DeadLetter: dead, Created: created, Epoch: h.at.Epoch}
	defer projections.Wrap(&err, "keep a dead letter")
	k := letterKey(h.name, h.at, dead.Position)
	if err = h.notes.Commit(ctx, k, l, h.claimKey, h.revision); err == nil && h.desk.most > 0 {
		err = h.bound(ctx, k)
	}
	return fenced(err)
}

// bound removes the oldest letters beyond the desk's bound, after a letter was written.
func (h *Claim) bound(ctx context.Context, kept string) error {
	if h.keys == nil {
		found, err := h.desk.letters(ctx, h.name, h.at.Store, h.at.Generation, strconv.Itoa(h.at.Partition)+".>")
		if err != nil {
			return err
		}
		for _, l := range found {
			h.keys = append(h.keys, l.Key)
		}
	} else if !slices.Contains(h.keys, kept) {
		h.keys = append(h.keys, kept)
	}
	for ; len(h.keys) > h.desk.most; h.keys = h.keys[1:] {
		if err := h.notes.Remove(ctx, h.keys[0], h.claimKey, h.revision); err != nil {
			return err
		}
	}
	return nil
}

// letters returns the letters of a generation in the matching partitions, in the order in which they were parked.
func (d *Desk) letters(
	ctx context.Context, name, store string, generation uint64, partitions string,
) (out []jetlog.Note[letter], err error) {
	notes, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	filter := key(generationKey("letter", name, store, generation), partitions)
	defer projections.Wrap(&err, "read the dead letters")
	err = jetlog.EachNote(ctx, notes, filter, func(n jetlog.Note[letter]) { out = append(out, n) })
	slices.SortFunc(out, func(a, b jetlog.Note[letter]) int {
		x, y := a.Value.Position, b.Value.Position
		return cmp.Or(a.Value.ParkedAt.Compare(b.Value.ParkedAt), cmp.Compare(x.Partition, y.Partition),
			cmp.Compare(x.Seq, y.Seq))
	})
	return out, err
}

// restoredStore is the store name of letters that came with a backup, since their real store is not known.
const restoredStore = "restored"

// Restore stores the letters that came with a backup of the log. They count for a view that followed the earlier log,
// until the view is rebuilt: an operator's decision that an event stays out must not be lost with the log. Restore
// skips a letter whose event the restored log does not hold.
func (d *Desk) Restore(ctx context.Context, log *jetlog.Log, letters []projections.DeadLetter) (err error) {
	defer projections.Wrap(&err, "restore a dead letter")
	notes, err := d.open(ctx)
	if err != nil {
		return err
	}
	for _, dead := range letters {
		if dead.Position.Partition >= log.Partitions() {
			continue
		}
		e, found, err := log.At(ctx, dead.Position)
		if err != nil {
			return err
		}
		if !found || projections.Label(e.ID) != dead.EventID {
			continue
		}
		k := letterKey(dead.Projection, projections.Checkpoint{Store: restoredStore}, dead.Position)
		var have letter
		revision, err := notes.Read(ctx, k, &have)
		if err == nil {
			l := letter{DeadLetter: dead, Created: log.Created(dead.Position.Partition)}
			err = notes.Commit(ctx, k, l, k, revision)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Clear removes the letters and owners of a generation that no longer exists.
func (d *Desk) Clear(ctx context.Context, name, store string, generation uint64) error {
	notes, err := d.open(ctx)
	if err != nil {
		return err
	}
	var gone []string
	for _, kind := range []string{"letter", "owner"} {
		all := key(generationKey(kind, name, store, generation), ">")
		err = errors.Join(err, notes.Each(ctx, all, func(n jetlog.Note[json.RawMessage]) error {
			gone = append(gone, n.Key)
			return nil
		}))
	}
	for _, k := range gone {
		err = errors.Join(err, notes.Drop(ctx, k))
	}
	return err
}
