package eraser

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
)

// Config of an Eraser.
type Config struct {
	Rules conversation.Rules
	// Rate bounds the events a second that are overwritten; 25 by default. Each rewrites a
	// block of up to 8 MB, and writes beside it wait: docs/benchmarks.md has the trade.
	// Redactions and late events don't wait for erasures of sessions and identities; where
	// both are under way they share the rate.
	Rate float64
	// Places are the views that receipts tell of.
	Places []Place
	// Documents are asked to delete turns before the log forgets them.
	Documents []Documents
	// Forget, where not nil, tells a view that keeps a row of each event that one of
	// another session's subject has left the log, which the view can't know by itself. It
	// may be told several times.
	Forget func(ctx context.Context, at events.Position) error
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Rate <= 0 {
		c.Rate = 25
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Rules.Slim = true
	return c
}

// Eraser erases. A runner shows it the log (projections.Task), and Run does what the log
// asks for. It parks nothing: what can't be erased keeps its receipt open, and is tried again.
type Eraser struct {
	log   Log
	notes *jetlog.Notes
	cfg   Config
	parts []*part

	urgent, bulk queue
	speed        *rate.Limiter
	stampers     []*stamper

	// later is what is left of late events that have left the log, and leftovers, by
	// partition, tell which of them are in hand.
	later     queue
	leftovers []*part

	// left are erasures of identities that Run has to begin, and atOnce bounds those that
	// look for their sessions.
	leaving sync.Mutex
	left    []func(context.Context) error
	atOnce  chan struct{}
	more    chan struct{}
}

var _ projections.Task = (*Eraser)(nil)

// New makes an eraser; it does no I/O.
func New(log Log, notes *jetlog.Notes, cfg Config) *Eraser {
	cfg = cfg.withDefaults()
	e := &Eraser{
		log: log, notes: notes, cfg: cfg, more: make(chan struct{}, 1), atOnce: make(chan struct{}, identitiesAtOnce),
		// None in a burst: a write that waits for one should not wait for the next, too.
		speed: rate.NewLimiter(rate.Limit(cfg.Rate), 1),
	}
	for _, q := range []*queue{&e.urgent, &e.bulk, &e.later} {
		q.signal = make(chan struct{}, 1)
	}
	for _, place := range cfg.Places {
		e.stampers = append(e.stampers, &stamper{place: place, signal: make(chan struct{}, 1)})
	}
	for k := range log.Partitions() {
		e.parts, e.leftovers = append(e.parts, &part{number: k}), append(e.leftovers, &part{})
	}
	return e
}

// Name implements projections.Task.
func (e *Eraser) Name() string { return "eraser" }

// Take implements projections.Task: it takes note of what is to be done. The stored
// progress follows when that is done.
func (e *Eraser) Take(ctx context.Context, b projections.Batch) error {
	p := e.parts[b.From.Partition]
	for i := range b.Events {
		if err := e.look(ctx, p, &b.Events[i]); err != nil {
			return err
		}
	}
	full := p.links.looked(b)
	p.pass(b.To.Seq)
	if full {
		return p.links.save(ctx, e.notes, p.number)
	}
	return nil
}

// look finds out what an event asks for.
func (e *Eraser) look(ctx context.Context, p *part, j *projections.Judged) error {
	if late(j) {
		e.enqueue(&e.urgent, p, &job{session: j.SessionID, subject: j.Subject, at: j.Position, run: e.eraseLate})
		return nil
	}
	switch j.Change.Kind {
	case conversation.TurnGone:
		e.enqueue(&e.urgent, p, &job{session: j.SessionID, at: j.Position, run: e.redact, together: true})
	case conversation.Erased:
		e.enqueue(&e.bulk, p, &job{session: j.SessionID, at: j.Position, run: e.eraseSession})
	case conversation.Anomaly:
		if session := conversation.OtherSession(j.Recorded); session != "" {
			e.enqueue(&e.urgent, p, &job{session: session, subject: j.Subject, at: j.Position, run: e.eraseElsewhere})
		}
	case conversation.Linked:
		return e.linked(ctx, j)
	case conversation.Noted:
		if f, ok := j.Fact.(*events.IdentityErased); ok && p.begin(j.Position.Seq) {
			e.enqueueIdentity(p, f, j.Position)
		}
	case conversation.Seen, conversation.Duplicate, conversation.Started, conversation.Answered, conversation.Corrected,
		conversation.Reset, conversation.Refused: // asks for nothing
	}
	return nil
}

// late tells whether an event came after the redaction or the erasure of what it
// names.
func late(j *projections.Judged) bool {
	c := j.Change
	switch {
	case c.Kind == conversation.Noted:
		return false
	case j.Head.Erased != 0 && j.Head.Erased != j.Position.Seq:
		return true
	case c.Kind == conversation.Anomaly:
		return c.Reason == conversation.CodeTurnRedacted
	default:
		return c.Kind == conversation.Duplicate && c.Turn != nil && c.Turn.Gone != 0
	}
}

// saveEvery is the pause between two looks at the progress.
const saveEvery = 200 * time.Millisecond

// Run does what the eraser was fed until ctx ends; then it returns nil. What is left
// undone is found again by the stored progress.
func (e *Eraser) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.urgent.work(ctx, e) })
	g.Go(func() error { return e.bulk.work(ctx, e) })
	g.Go(func() error { return e.later.work(ctx, e) })
	g.Go(func() error { return e.saveAll(ctx) })
	for _, s := range e.stampers {
		g.Go(func() error { return s.run(ctx, e) })
	}
	// Waits for the sessions of an identity hold nobody up.
	var waits sync.WaitGroup
	defer waits.Wait()
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-e.more:
			for _, wait := range e.taken() {
				waits.Go(func() { _ = wait(ctx) }) // it logs, and ends with ctx
			}
		}
	}
}

func (e *Eraser) saveAll(ctx context.Context) error {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		for _, p := range e.parts {
			if err := e.save(ctx, p); err != nil && ctx.Err() == nil {
				e.cfg.Logger.Warn("the eraser's progress can't be stored; it is tried again", "partition", p.number, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			for _, p := range e.parts {
				_ = errors.Join(p.links.save(last, e.notes, p.number), e.save(last, p)) // else it begins a little earlier
			}
			return nil
		case <-tick.C:
		}
	}
}
