package history

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
)

// Config of a Service.
type Config struct {
	Rules  conversation.Rules
	Policy conversation.Policy
	// FinalizeWithoutStart starts a turn that a finalize names and that was never started. For development.
	FinalizeWithoutStart bool
	// StateBytes bounds the states held in memory; 128 MiB by default. A state that was not used for the SessionTTL is
	// dropped before.
	StateBytes uint64
	Logger     *slog.Logger
}

// Service records turns. Its methods are safe for concurrent use. They work while Run runs.
type Service struct {
	log      Log
	cfg      Config
	sessions *otter.Cache[string, *session]
	loads    chan struct{}
	parts    []*following
}

var (
	_ services.TurnWriter    = (*Service)(nil)
	_ services.SessionWriter = (*Service)(nil)
	_ services.ErasureWriter = (*Service)(nil)
)

// following is the service's own tail of one partition.
type following struct {
	started chan struct{}
	folded  jetlog.Watermark
}

// concurrentLoads of cold sessions (docs/design.md#writing: up to 300 ms each).
const concurrentLoads = 16

// New returns a service. It does no I/O.
func New(log Log, cfg Config) *Service {
	cfg.Rules.Slim = true
	cfg.StateBytes = cmp.Or(cfg.StateBytes, 128<<20)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &Service{log: log, cfg: cfg, loads: make(chan struct{}, concurrentLoads)}
	held := &otter.Options[string, *session]{
		MaximumWeight: cfg.StateBytes,
		Executor:      func(work func()) { work() },
		Weigher:       func(id string, x *session) uint32 { return x.weight(id) },
	}
	// A session that has been silent for its life has no claim on memory.
	if cfg.Rules.SessionTTL > 0 {
		held.ExpiryCalculator = otter.ExpiryAccessing[string, *session](cfg.Rules.SessionTTL)
	}
	s.sessions = otter.Must(held)
	for range s.log.Partitions() {
		s.parts = append(s.parts, &following{started: make(chan struct{})})
	}
	return s
}

// weight estimates the bytes of a held session.
func (x *session) weight(id string) uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 768 + len(id) + 320*len(x.state.Turns) + outcomeWeight*len(x.outcomes) + x.questionBytes
	return uint32(n) //nolint:gosec // far below 2^32
}

// Run follows the log until ctx ends, and then returns nil. It returns an error if the stream is no longer the one that
// it followed.
func (s *Service) Run(ctx context.Context) error {
	defer s.sessions.StopAllGoroutines()
	g, ctx := errgroup.WithContext(ctx)
	for k := range s.parts {
		g.Go(func() error { return s.follow(ctx, k) })
	}
	return g.Wait()
}

// follow folds one partition for ever.
func (s *Service) follow(ctx context.Context, k int) error {
	f := s.parts[k]
	return jetlog.Follow(ctx, s.log, jetlog.Following{
		Partition: k, Options: jetlog.TailOptions{Ungated: true}, Mark: &f.folded, Pause: 100 * time.Millisecond,
		Begin: func(ctx context.Context) (uint64, error) {
			head, err := s.log.Head(ctx, k)
			return head.Seq, err
		},
		Opened: func() { close(f.started) },
		Read: func(_ context.Context, batch []jetlog.Message) error {
			for _, m := range batch {
				s.deliver(m)
			}
			return nil
		},
		Warn: func(err error) {
			s.cfg.Logger.Warn("the log is followed anew", "partition", k, "position", f.folded.At(), "err", err)
		},
	})
}

// deliver hands an event to its session, if the session is held.
func (s *Service) deliver(m jetlog.Message) {
	id, identity, err := events.ParseSubject(m.Subject)
	if err != nil || identity {
		return
	}
	x, ok := s.sessions.GetIfPresent(id)
	if !ok {
		return
	}
	x.deliver(m)
	s.weighAnew(id)
}

// weighAnew weighs a session that has grown, if the session is still held.
func (s *Service) weighAnew(id string) {
	s.sessions.ComputeIfPresent(id, func(held *session) (*session, otter.ComputeOp) { return held, otter.WriteOp })
}
