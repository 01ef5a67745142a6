package follower

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/room"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// Log is what a follower reads. A jetlog.Log is one.
type Log interface {
	Partitions() int
	Head(ctx context.Context, partition int) (events.Position, error)
	Tail(ctx context.Context, partition int, after uint64, opts jetlog.TailOptions) (*jetlog.Tail, error)
	Durable(ctx context.Context, at events.Position) error
	Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error]
	Still(ctx context.Context, partition int, after, upTo uint64) (bool, error)
	Room() *room.Room
}

// Config of a Follower.
type Config struct {
	Rules session.Rules
	// Bytes bounds the rings, what waits to be durable and the judges' states of all partitions, together with what
	// readers of the log hold (jetlog.Config.ReadBytes, of which half of these bytes at most count); 64 MiB by default.
	Bytes int64
	// Loads is how many sessions judges read from the log at once; 16 by default. After each they pause for
	// PauseFactor times as long as it took. JetStream stores nothing while it looks for a session's next event, so that
	// the writers of an embedded log wait for each load.
	Loads, PauseFactor int
	// Sessions is where judges read sessions; the log by default.
	Sessions projections.SessionReader
	// Pause before a log that broke off is read again; 100 ms by default.
	Pause  time.Duration
	Logger *slog.Logger
}

// Follower reads the partitions of a log, each once, for a decider and for subscribers. Safe for concurrent use.
type Follower struct {
	log     Log
	cfg     Config
	alone   bool
	decider func(*jetlog.Message)
	budget  *budget
	loads   *loads
	parts   []*part
}

// concurrentLoads of cold sessions by judges (docs/design.md#writing: up to 300 ms each).
const concurrentLoads = 16

// New returns a follower. It does no I/O. Subscribers wait for Run, but not for long.
func New(log Log, cfg Config) *Follower {
	cfg.Bytes, cfg.Pause = cmp.Or(cfg.Bytes, 64<<20), cmp.Or(cfg.Pause, 100*time.Millisecond)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Sessions == nil {
		cfg.Sessions = log
	}
	f := &Follower{log: log, cfg: cfg, budget: newBudget(cfg.Bytes, log.Room())}
	f.loads = &loads{slots: make(chan struct{}, cmp.Or(cfg.Loads, concurrentLoads)), pauseFactor: cfg.PauseFactor}
	for k := range log.Partitions() {
		f.parts = append(f.parts, newPart(f, k))
	}
	return f
}

// Alone returns a follower that is not to be run: each of its subscribers reads the log by itself.
func Alone(log Log, cfg Config) *Follower {
	f := New(log, cfg)
	f.alone = true
	return f
}

// Decide hands every event to a decider, before anybody else sees it and before it is durable. The decider must not
// read the log. It is set before Run.
func (f *Follower) Decide(decider func(*jetlog.Message)) { f.decider = decider }

// Started is closed once the decider gets each event of a partition that comes.
func (f *Follower) Started(partition int) <-chan struct{} { return f.parts[partition].started }

// Folded is the watermark of what the decider has.
func (f *Follower) Folded(partition int) *jetlog.Watermark { return &f.parts[partition].folded }

// Run follows the log until ctx ends, and then returns nil. It returns an error if a stream is no longer the one that
// it followed (jetlog.ErrStream).
func (f *Follower) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range f.parts {
		g.Go(func() error { return p.run(ctx) })
	}
	return g.Wait()
}

// Subscription brings one subscriber the events of a partition, each once and in order. For one goroutine.
type Subscription[E any] struct {
	source source[E] // nil once it is closed
	part   *part     // nil for one that reads by itself
	tally  *room.Tally
}

// Tally counts what the subscriber holds of what Next has returned; nil where its own tail counts that. The subscriber
// grows it; Close gives it back.
func (s *Subscription[E]) Tally() *room.Tally { return s.tally }

// Next returns the next events, at least one. It blocks until there are events, ctx ends, or the log fails; the next
// call goes on. After jetlog.ErrStream the subscriber has nothing to wait for.
func (s *Subscription[E]) Next(ctx context.Context) ([]E, error) {
	for {
		batch, _, err := s.source.next(ctx)
		if len(batch) > 0 || err != nil {
			return batch, err
		}
	}
}

// Close ends the subscription. No call of Next may run.
func (s *Subscription[E]) Close() {
	if s.source == nil {
		return
	}
	s.source.close()
	if s.source = nil; s.part != nil {
		s.part.leave()
		s.tally.Leave()
	}
}

// Own brings the events of a partition after a sequence by a tail of its own.
func Own(log jetlog.Tailer, partition int, after uint64, opts jetlog.TailOptions) *Subscription[jetlog.Message] {
	return &Subscription[jetlog.Message]{source: &tailSource{
		log: log, partition: partition, after: after, opts: opts,
	}}
}

// Events subscribes to the events of a partition after a sequence. Opts say how a subscriber reads that is behind; one
// that is not gets whole, decoded events.
func (f *Follower) Events(partition int, after uint64, opts jetlog.TailOptions) *Subscription[jetlog.Message] {
	p := f.parts[partition]
	p.enter()
	tally := p.log.Room().Tally()
	return &Subscription[jetlog.Message]{source: p.events(after, opts, tally.Left), part: p, tally: tally}
}

// Judged subscribes to the events of a partition after a sequence, each with its verdict. most bounds the events of a
// batch. Nobody may change the events, since all subscribers share them.
func (f *Follower) Judged(partition int, after uint64, most int) *Subscription[projections.Judged] {
	p := f.parts[partition]
	p.enter()
	tally := p.log.Room().Tally()
	r := &reader[projections.Judged]{most: most, left: tally.Left, at: after, floor: p.read.Load, lead: p.leadWith}
	r.open = func(after uint64) source[projections.Judged] { return p.judging(after, most) }
	if !f.alone {
		r.ring = p.judged
	}
	return &Subscription[projections.Judged]{source: r, part: p, tally: tally}
}

// events returns a reader of what there is after a sequence. left bounds the bytes that it takes at once from the ring.
func (p *part) events(after uint64, opts jetlog.TailOptions, left func() int) *reader[jetlog.Message] {
	opts.MaxBatch = cmp.Or(opts.MaxBatch, 1000)
	r := &reader[jetlog.Message]{
		most: opts.MaxBatch, left: left, at: after, floor: p.read.Load, quiet: true,
		still: func(ctx context.Context, after, upTo uint64) (bool, error) {
			return p.log.Still(ctx, p.number, after, upTo)
		},
		open: func(after uint64) source[jetlog.Message] {
			return &tailSource{log: p.log, partition: p.number, after: after, opts: opts}
		},
	}
	if !p.alone {
		r.ring = p.raw
	}
	return r
}

// judging returns a source with a judge of its own.
func (p *part) judging(after uint64, most int) *judgeSource {
	s := &judgeSource{
		raw:    p.events(after, jetlog.TailOptions{MaxBatch: most, Decode: true}, func() int { return math.MaxInt }),
		budget: p.budget, loads: p.loads, most: most, at: after, to: after,
		judge: projections.NewJudge(p.cfg.Sessions, p.cfg.Rules, after),
	}
	p.budget.add(s)
	return s
}
