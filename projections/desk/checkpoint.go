package desk

import (
	"context"
	"strconv"

	"github.com/turnledger/turnledger/projections"
)

// Move reads the checkpoint of a projection that has no store for it, and writes the one that change makes of it; a nil
// change only reads. It fails with ErrFenced if change returns false, or another process wrote meanwhile.
func (d *Desk) Move(
	ctx context.Context, name string, partition int, change func(*projections.Checkpoint) bool,
) (cp projections.Checkpoint, err error) {
	defer projections.Wrap(&err, "move a checkpoint")
	notes, err := d.open(ctx)
	if err != nil {
		return cp, err
	}
	k := key("checkpoint", name, strconv.Itoa(partition))
	revision, err := notes.Read(ctx, k, &cp)
	cp.Partition = partition
	if err != nil || change == nil {
		return cp, err
	}
	if !change(&cp) {
		return cp, projections.ErrFenced
	}
	_, err = notes.Write(ctx, k, cp, revision)
	return cp, fenced(err)
}
