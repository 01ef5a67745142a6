package runner

import (
	"context"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/projections"
)

// aliveBeats is after how many beats without a word a runner counts as dead.
const aliveBeats = 5

// leaveDeadline is for the goodbye of a runner that stops.
const leaveDeadline = 2 * time.Second

// share feeds the partitions that fall to this runner, and follows as others come and
// go. Where the group's store is away it goes on with what it has: what it may write,
// the epoch decides.
func (r *Runner) share(ctx context.Context, g *errgroup.Group) error {
	me := uuid.NewString()
	own := map[int]*turn{}
	defer r.leave(ctx, me)
	defer func() {
		for _, t := range own {
			t.stop()
			<-t.done
		}
	}()
	beat := time.NewTicker(r.cfg.Beat)
	defer beat.Stop()
	known := 0
	for {
		members, err := r.meet(ctx, me)
		// One that comes to others lets them hear of it first, and give away what is to be
		// its own.
		joins := known == 0 && len(members) > 1
		if err == nil {
			if len(members) != known {
				known = len(members)
				r.cfg.Logger.Info("the partitions are shared out", "projection", r.proj.Name(), "runners", known)
			}
			if !joins {
				r.follow(ctx, g, own, projections.Share(me, members, len(r.parts)))
			}
		} else if ctx.Err() == nil {
			r.cfg.Logger.Warn("the other runners can't be asked for", "projection", r.proj.Name(), "err", err)
			for k, p := range r.parts {
				if own[k] == nil {
					p.set(retrying, err)
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		}
	}
}

// meet bounds one beat, so that a store that hangs does not stop the next.
func (r *Runner) meet(ctx context.Context, me string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, (aliveBeats-1)*r.cfg.Beat)
	defer cancel()
	return r.cfg.Group.Beat(ctx, me, aliveBeats*r.cfg.Beat)
}

func (r *Runner) leave(ctx context.Context, me string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveDeadline)
	defer cancel()
	// One that can't say so counts as dead a few seconds later.
	_ = r.cfg.Group.Leave(ctx, me)
}

// turn is the time in which this runner feeds a partition.
type turn struct {
	stop context.CancelFunc
	done chan struct{}
}

// follow ends what no longer falls to this runner and begins what does. A partition
// that is still bringing its last batch to an end is begun again by a later beat.
func (r *Runner) follow(ctx context.Context, g *errgroup.Group, own map[int]*turn, share []int) {
	mine := map[int]bool{}
	for _, k := range share {
		mine[k] = true
	}
	for k, t := range own {
		if !mine[k] {
			t.stop()
		}
		select {
		case <-t.done:
			delete(own, k)
		default:
		}
	}
	for k := range r.parts {
		switch {
		case !mine[k] && own[k] == nil:
			r.parts[k].set(standby, nil)
		case mine[k] && own[k] == nil:
			own[k] = r.begin(ctx, g, k)
		}
	}
}

func (r *Runner) begin(ctx context.Context, g *errgroup.Group, k int) *turn {
	ctx, stop := context.WithCancel(ctx)
	t := &turn{stop: stop, done: make(chan struct{})}
	g.Go(func() error {
		defer close(t.done)
		defer stop()
		return r.runPartition(ctx, k)
	})
	return t
}
