package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
)

// Log is what the command side needs of the log; *jetlog.Log is one.
type Log interface {
	Partitions() int
	Partition(sessionID string) int
	Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error)
	Durable(ctx context.Context, at events.Position) error
	Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error]
	IdentityErasure(ctx context.Context, identityID string, upTo events.Position) (*events.IdentityErased, events.Position, error)
	Reached(ctx context.Context, mark *jetlog.Watermark, at events.Position) error
	At(ctx context.Context, at events.Position) (events.Recorded, bool, error)
	Head(ctx context.Context, partition int) (events.Position, error)
	Tail(ctx context.Context, partition int, after uint64, opts jetlog.TailOptions) (*jetlog.Tail, error)
}

// Config of a Service.
type Config struct {
	Rules  conversation.Rules
	Policy conversation.Policy
	// FinalizeWithoutStart starts a turn that a finalize names and that was never
	// started. For development.
	FinalizeWithoutStart bool
	// StateBytes bounds the states held in memory; 128 MiB by default. One that was not
	// used for the SessionTTL goes before.
	StateBytes uint64
	Logger     *slog.Logger
}

// Service records turns. Its methods are safe for concurrent use and work while
// Run runs.
type Service struct {
	log      Log
	cfg      Config
	sessions *otter.Cache[string, *session]
	loads    chan struct{}
	parts    []*following
}

// following is the service's own tail of one partition.
type following struct {
	started chan struct{}
	folded  jetlog.Watermark
}

// concurrentLoads of cold sessions (DESIGN §3: up to 300 ms each).
const concurrentLoads = 16

// New makes a service; it does no I/O.
func New(log Log, cfg Config) *Service {
	cfg.Rules.Slim = true
	if cfg.StateBytes == 0 {
		cfg.StateBytes = 128 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{log: log, cfg: cfg, loads: make(chan struct{}, concurrentLoads)}
	s.sessions = otter.Must(&otter.Options[string, *session]{
		MaximumWeight: cfg.StateBytes,
		Executor:      func(work func()) { work() },
		Weigher:       func(id string, x *session) uint32 { return x.weight(id) },
		// A session that has been silent for its life has no claim on memory.
		ExpiryCalculator: forgotten(cfg.Rules.SessionTTL),
		Clock:            clock{},
	})
	for range log.Partitions() {
		s.parts = append(s.parts, &following{started: make(chan struct{})})
	}
	return s
}

// forgotten gives when what was not used is let go; nil: by its weight alone.
func forgotten(after time.Duration) otter.ExpiryCalculator[string, *session] {
	if after <= 0 {
		return nil
	}
	return otter.ExpiryAccessing[string, *session](after)
}

// clock is the system's. It does not tick: Run looks for what is to be let go.
type clock struct{}

func (clock) NowNano() int64                      { return time.Now().UnixNano() }
func (clock) Tick(time.Duration) <-chan time.Time { return nil }

// letGo frees what is forgotten until ctx ends.
func (s *Service) letGo(ctx context.Context) error {
	tick := time.NewTicker(max(min(s.cfg.Rules.SessionTTL, time.Minute), time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.sessions.CleanUp()
		}
	}
}

// weight estimates the bytes of a held session.
func (x *session) weight(id string) uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return uint32(768 + len(id) + 320*len(x.state.Turns) + outcomeWeight*len(x.order) + x.asked) //nolint:gosec // far below 2^32
}

// Run follows the log until ctx ends, and then returns nil. It returns an error
// where the stream is no longer the one it followed.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for k := range s.parts {
		g.Go(func() error { return s.follow(ctx, k) })
	}
	g.Go(func() error { return s.letGo(ctx) })
	return g.Wait()
}

// follow folds one partition for ever; a tail that breaks off is taken up again
// where it was.
func (s *Service) follow(ctx context.Context, k int) error {
	f := s.parts[k]
	at, began := uint64(0), false
	for ctx.Err() == nil {
		err := s.followOnce(ctx, k, &at, &began)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jetlog.ErrStream):
			return fmt.Errorf("follow partition %d: %w", k, err)
		}
		s.cfg.Logger.Warn("the log is followed anew", "partition", k, "position", f.folded.At(), "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

func (s *Service) followOnce(ctx context.Context, k int, at *uint64, began *bool) error {
	f := s.parts[k]
	if !*began {
		head, err := s.log.Head(ctx, k)
		if err != nil {
			return err
		}
		*at = head.Seq
	}
	tail, err := s.log.Tail(ctx, k, *at, jetlog.TailOptions{Ungated: true})
	if err != nil {
		return err
	}
	defer tail.Close()
	if !*began {
		*began = true
		f.folded.Advance(*at)
		close(f.started)
	}
	for {
		batch, err := tail.Next(ctx)
		if err != nil {
			return err
		}
		for _, m := range batch {
			s.take(m)
		}
		*at = batch[len(batch)-1].Position.Seq
		f.folded.Advance(*at)
	}
}

// take gives an event to the session that is held for it; others are nobody's
// business here.
func (s *Service) take(m jetlog.Message) {
	id, identity, err := events.ParseSubject(m.Subject)
	if err != nil || identity {
		return
	}
	x, ok := s.sessions.GetIfPresent(id)
	if !ok {
		return
	}
	x.take(m)
	s.weighAnew(id)
}

// weighAnew weighs a session that has grown, if it is still held.
func (s *Service) weighAnew(id string) {
	s.sessions.ComputeIfPresent(id, func(held *session) (*session, otter.ComputeOp) { return held, otter.WriteOp })
}
