package localpg

import (
	"context"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events/pause"
)

// stopDeadline is how long the end of PostgreSQL may take.
const stopDeadline = 15 * time.Second

// Keep starts PostgreSQL again when it ends by itself, until stop is called, which stops it for good.
func (s *Server) Keep(ctx context.Context) (stop func()) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var keeper sync.WaitGroup
	keeper.Go(func() {
		for {
			select {
			case <-life.Done():
				return
			case <-s.Done():
			}
			s.log.Warn("PostgreSQL has ended and is started again", "log", s.LogFile())
			if err := s.Restart(life); err != nil && life.Err() == nil {
				s.log.Error("PostgreSQL does not start; the audit catches up when it does", "err", err)
				pause.For(life, 5*time.Second)
			}
		}
	})
	return func() {
		end()
		keeper.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopDeadline)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			s.log.Error("PostgreSQL did not stop cleanly", "err", err)
		}
	}
}
