package write

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/maypok86/otter/v2"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/convoy"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/follower"
	"github.com/turnledger/turnledger/services"
)

// Config of a Service.
type Config struct {
	Rules  session.Rules
	Policy decide.Policy
	// FinalizeWithoutStart makes a finalize start its turn if the turn was never started. For development.
	FinalizeWithoutStart bool
	// StateBytes bounds the states held in memory; 128 MiB by default. A state that was unused for the SessionTTL is
	// dropped earlier.
	StateBytes uint64
	// Follower reads the log for the service, and is run by others; by default the service has one of its own, which
	// Run runs.
	Follower *follower.Follower
	Logger   *slog.Logger
}

// Service records turns. Its methods are safe for concurrent use. They work while Run runs.
type Service struct {
	log      Log
	cfg      Config
	sessions *otter.Cache[string, *hydrated]
	inFlight inFlight
	loads    chan struct{}
	follower *follower.Follower
	// withdrawn are told of sessions of which texts were withdrawn.
	withdrawn []func(sessionID string)
	begins    convoy.Convoy[*beginning]
}

var (
	_ services.TurnWriter    = (*Service)(nil)
	_ services.SessionWriter = (*Service)(nil)
	_ services.ErasureWriter = (*Service)(nil)
)

// concurrentLoads bounds the cold sessions that are read at once (docs/design.md#writing: up to 300 ms each).
const concurrentLoads = 16

// New returns a service. It does no I/O.
func New(log Log, cfg Config) *Service {
	cfg.Rules.Slim = true
	cfg.StateBytes = cmp.Or(cfg.StateBytes, 128<<20)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &Service{log: log, cfg: cfg, loads: make(chan struct{}, concurrentLoads)}
	s.inFlight.of = map[string]*pin{}
	held := &otter.Options[string, *hydrated]{
		MaximumWeight: cfg.StateBytes,
		Executor:      func(work func()) { work() },
		Weigher:       func(id string, x *hydrated) uint32 { return x.weight(id) },
	}
	// After its SessionTTL a session starts anew, so its old state is not worth memory.
	if cfg.Rules.SessionTTL > 0 {
		held.ExpiryCalculator = otter.ExpiryAccessing[string, *hydrated](cfg.Rules.SessionTTL)
	}
	s.sessions = otter.Must(held)
	if s.follower = cfg.Follower; s.follower == nil {
		s.follower = follower.New(log, follower.Config{Rules: cfg.Rules, Logger: cfg.Logger})
	}
	s.follower.Decide(s.deliver)
	return s
}

// weight estimates the bytes of a held session.
func (x *hydrated) weight(id string) uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 768 + len(id) + x.state.Size() + x.questionBytes
	return uint32(n) //nolint:gosec // far below 2^32
}

// Run follows the log until ctx ends, and then returns nil. It returns an error if the stream is no longer the one that
// it followed.
func (s *Service) Run(ctx context.Context) error {
	defer s.sessions.StopAllGoroutines()
	if s.cfg.Follower == nil {
		return s.follower.Run(ctx)
	}
	<-ctx.Done()
	return nil
}

// deliver hands an event to its session, if the session is held. Of texts that an event withdraws readers are told only
// then: one that keeps none of them any more sees the session without them.
func (s *Service) deliver(m *jetlog.Message) {
	id, identity, err := events.ParseSubject(m.Subject)
	if err != nil || identity {
		return
	}
	x := s.inFlight.get(id)
	if x == nil {
		x, _ = s.sessions.GetIfPresent(id)
	}
	if x != nil {
		m.Decode()
		x.deliver(*m)
		s.weighAnew(id)
	}
	if events.Withdraws(m.Type()) {
		for _, told := range s.withdrawn {
			told(id)
		}
	}
}

// weighAnew weighs a session that has grown, if the session is still held.
func (s *Service) weighAnew(id string) {
	s.sessions.ComputeIfPresent(id, func(held *hydrated) (*hydrated, otter.ComputeOp) { return held, otter.WriteOp })
}
