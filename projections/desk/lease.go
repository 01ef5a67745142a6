package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
)

// holdFor is how long the holder of a lease may be silent before another process may take the lease. The former holder
// is fenced not by this time but by the number of its generation.
const holdFor = 15 * time.Second

// Lease takes the right to rebuild a projection's store, until release is called. It fails with
// projections.ErrRebuilding while another holder lives. The lease only decides who tries: the store itself fences a
// holder that has lost the lease.
func (d *Desk) Lease(ctx context.Context, name, store string) (release func(context.Context), err error) {
	notes, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	me, held := uuid.NewString(), key("lease", name, storeKey(store))
	group := d.Members("rebuild-"+name, func(context.Context) (string, error) { return store, nil })
	if err := takeLease(ctx, notes, group, held, me); err != nil {
		return nil, errors.Join(err, group.Leave(context.WithoutCancel(ctx), me))
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	go func() {
		defer close(over)
		for pause.For(life, holdFor/5) {
			_, _ = group.Beat(life, me, holdFor) // the next beat may arrive
		}
	}()
	return func(ctx context.Context) {
		end()
		<-over
		_ = group.Leave(ctx, me) // otherwise the lease expires
	}, nil
}

// takeLease writes the holder's name unless another live holder has the lease.
func takeLease(ctx context.Context, notes Notes, group *Members, held, me string) error {
	living, err := group.Beat(ctx, me, holdFor)
	if err != nil {
		return err
	}
	var holder string
	revision, err := notes.Read(ctx, held, &holder)
	if err != nil {
		return err
	}
	if holder != "" && slices.Contains(living, holder) {
		return projections.ErrRebuilding
	}
	_, err = notes.Write(ctx, held, me, revision)
	if errors.Is(err, jetlog.ErrConflict) {
		return projections.ErrRebuilding
	}
	if err != nil {
		return fmt.Errorf("take the lease: %w", err)
	}
	return nil
}
