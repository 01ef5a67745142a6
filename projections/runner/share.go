package runner

import (
	"context"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/projections"
)

// aliveBeats is the number of missed beats after which a runner counts as dead.
const aliveBeats = 5

// leaveDeadline bounds the message by which a stopping runner leaves its group.
const leaveDeadline = 2 * time.Second

// share feeds this runner's share of the partitions, and adapts it as other runners come and go. If the group's store
// is away, the runner keeps its partitions; the epoch decides what it may write.
func (r *Runner) share(ctx context.Context, g *errgroup.Group) error {
	me := uuid.NewString()
	own := map[int]*feeding{}
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
		// A runner that joins others waits one beat, so that they learn of it and release its partitions.
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

// meet bounds one beat, so that a hanging store does not delay the next beat.
func (r *Runner) meet(ctx context.Context, me string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, (aliveBeats-1)*r.cfg.Beat)
	defer cancel()
	return r.cfg.Group.Beat(ctx, me, aliveBeats*r.cfg.Beat)
}

func (r *Runner) leave(ctx context.Context, me string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveDeadline)
	defer cancel()
	// If this fails, the runner counts as dead a few seconds later.
	_ = r.cfg.Group.Leave(ctx, me)
}

// feeding is the period in which this runner feeds a partition.
type feeding struct {
	stop context.CancelFunc
	done chan struct{}
}

// follow stops feeding partitions outside the share, and begins those that are new in it. If a partition's last batch
// is still being completed, a later beat begins that partition again.
func (r *Runner) follow(ctx context.Context, g *errgroup.Group, own map[int]*feeding, share []int) {
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

func (r *Runner) begin(ctx context.Context, g *errgroup.Group, k int) *feeding {
	ctx, stop := context.WithCancel(ctx)
	t := &feeding{stop: stop, done: make(chan struct{})}
	g.Go(func() error {
		defer close(t.done)
		defer stop()
		return r.runPartition(ctx, k)
	})
	return t
}
