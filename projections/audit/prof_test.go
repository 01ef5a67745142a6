package audit

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/projections"
)

var Times = map[string]time.Duration{}
var mu sync.Mutex

var Pid int

func cpu() time.Duration {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", Pid))
	var n int64
	fmt.Sscanf(string(b), "%d", &n)
	return time.Duration(n)
}

func Timed(name string, f func() error) error {
	t := time.Now()
	c := cpu()
	err := f()
	mu.Lock()
	Times[name] += time.Since(t)
	Times["CPU "+name] += cpu() - c
	mu.Unlock()
	return err
}

func (a *Audit) ApplyTimed(ctx context.Context, b projections.Batch) error {
	var p *plan
	var err error
	_ = Timed("plan", func() error { p, err = a.plan(ctx, b); return nil })
	if err != nil {
		return err
	}
	return Timed("tx", func() error {
		var end time.Time
		err := a.inTx(ctx, b, func(tx pgx.Tx) error {
			steps := []func(context.Context, pgx.Tx, projections.Batch, *plan) error{
				a.forget, a.leaveOut, a.copyEvents, a.copyTurns, a.mergeTurns, a.patchTurns, a.writeSessions,
			}
			return Timed("write", func() error {
				for i, step := range steps {
					if err := Timed(fmt.Sprint("step", i), func() error { return step(ctx, tx, b, p) }); err != nil {
						return err
					}
				}
				end = time.Now()
				return nil
			})
		})
		mu.Lock()
		Times["commit"] += time.Since(end)
		mu.Unlock()
		return err
	})
}
