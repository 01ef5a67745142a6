package eraser

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// Config of an Eraser.
type Config struct {
	Rules session.Rules
	// Owners knows the sessions of identities.
	Owners Owners
	// Rate bounds the events a second that are overwritten; 25 by default. Each overwriting rewrites a block of up to 8
	// MB while other writes wait; docs/benchmarks.md shows the cost. Redactions and late events don't wait for erasures
	// of sessions and identities; when both are under way they share the rate.
	Rate float64
	// Places are the views that receipts list.
	Places []Place
	// Documents, if set, is a store that deletes turns before the log forgets them.
	Documents Documents
	// Forget, if set, tells a view that keeps a row for each event that an event has left the log. It is called for
	// events on a subject other than their session's, whose loss the view can't know by itself. It may be called
	// several times for one event.
	Forget func(ctx context.Context, at events.Position) error
	Logger *slog.Logger
}

// Eraser erases. A runner feeds it the log (projections.Task), and Run does the work that the log asks for. It never
// gives an event up: if an erasure fails, its receipt stays open, and the eraser tries again.
type Eraser struct {
	log   Log
	notes *jetlog.Notes
	cfg   Config
	parts []*part
	speed *rate.Limiter

	// urgent holds redactions and late events, bulk holds sessions, and identities holds the erased identities whose
	// sessions are to be found.
	urgent, bulk, identities *queue
	// later holds the rest of the work for late events that have left the log; leftovers, by partition, tracks which of
	// them are being worked on.
	later     *queue
	leftovers []*part
	// proofs holds erasures whose events have left the log, until the servers are known to have overwritten them.
	proofs   *queue
	stampers []stamper
}

// stamper polls one view's position and stamps the receipts that wait for that view. Receipts share one poll, however
// many wait for a view that is down.
type stamper struct {
	place Place
	*queue
}

var _ projections.Task = (*Eraser)(nil)

// identitiesAtOnce bounds the erasures of identities that wait for their sessions at the same time. More would not be
// faster, since the sessions are erased one after the other.
const identitiesAtOnce = 8

// proofsAtOnce bounds the erasures that are being proved at the same time; each waits a moment for a server.
const proofsAtOnce = 8

// New makes an eraser; it does no I/O.
func New(log Log, notes *jetlog.Notes, cfg Config) *Eraser {
	if cfg.Rate <= 0 {
		cfg.Rate = 25
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Rules.Slim = true
	e := &Eraser{
		log: log, notes: notes, cfg: cfg,
		urgent: newQueue(1), bulk: newQueue(1), identities: newQueue(identitiesAtOnce), later: newQueue(1),
		proofs: newQueue(proofsAtOnce),
		// The burst is 1: a write that waited for one overwriting should not wait for the next too.
		speed: rate.NewLimiter(rate.Limit(cfg.Rate), 1),
	}
	for _, place := range cfg.Places {
		e.stampers = append(e.stampers, stamper{place, newQueue(1)})
	}
	for k := range log.Partitions() {
		e.parts, e.leftovers = append(e.parts, &part{number: k}), append(e.leftovers, &part{})
	}
	return e
}

// Name implements projections.Task.
func (e *Eraser) Name() string { return "eraser" }

// Take implements projections.Task. It queues the work that the batch asks for. Progress is stored later, once the work
// is done.
func (e *Eraser) Take(ctx context.Context, b projections.Batch) error {
	p := e.parts[b.From.Partition]
	for i := range b.Events {
		if err := e.look(ctx, p, &b.Events[i]); err != nil {
			return err
		}
	}
	p.pass(b.To.Seq)
	return nil
}

// look queues the work that an event asks for.
func (e *Eraser) look(ctx context.Context, p *part, j *projections.Judged) error {
	if cameAfterErasure(j) {
		e.urgent.enqueue(p, &job{session: j.SessionID, subject: j.Subject, at: j.Position, run: e.eraseLate})
		return nil
	}
	soon := func(run task) { e.urgent.enqueue(p, &job{session: j.SessionID, at: j.Position, run: run}) }
	switch c := &j.Change; c.Kind.Group() { // one job an event: the queue takes no second one of its position
	case session.GroupGone:
		e.urgent.enqueue(p, &job{session: j.SessionID, at: j.Position, run: e.redact, together: true})
	case session.GroupSessionGone:
		e.bulk.enqueue(p, &job{session: j.SessionID, at: j.Position, run: e.eraseSession})
	case session.GroupText:
		if len(c.Turns) > 0 {
			soon(e.voidFirst(e.eraseBelow))
		} else if c.VoidsSummary {
			soon(e.voidFirst(nil))
		}
	case session.GroupHead:
		return e.lookAtHead(ctx, j, soon)
	case session.GroupNone:
		if c.Kind == session.Anomaly {
			if sessionID := session.OtherSession(j.Recorded); sessionID != "" {
				e.urgent.enqueue(p, &job{session: sessionID, subject: j.Subject, at: j.Position, run: e.eraseElsewhere})
			}
		}
		if f, ok := j.Fact.(*events.IdentityErased); ok && c.Kind == session.Noted {
			run := func(ctx context.Context, j *job) (remainder, error) { return e.eraseIdentity(ctx, f, j.at) }
			e.identities.enqueue(p, &job{at: j.Position, run: run})
		}
	}
	return nil
}

// lookAtHead queues the work that a change of a session without its turns asks for.
func (e *Eraser) lookAtHead(ctx context.Context, j *projections.Judged, soon func(task)) error {
	run := map[session.Kind]task{
		session.Described: e.replaceDescription, session.Linked: e.linkBranches, session.Forked: e.linkBranch,
	}[j.Change.Kind]
	// A kind undoes a silence, and a link ends one. What a branch shares may have changed before its summary came.
	if j.Change.VoidsSummary || j.Change.Kind == session.Summarized && j.Head.Fork().Root != "" {
		run = e.voidFirst(run)
	}
	if run != nil {
		soon(run)
	}
	if j.Change.Kind == session.Linked {
		return e.linked(ctx, j)
	}
	return nil
}

// cameAfterErasure reports whether an event came after the redaction or erasure of the turn or session that it names,
// or is a description or a summary that does not count: the text of one that was replaced leaves the log.
func cameAfterErasure(j *projections.Judged) bool {
	c := j.Change
	switch {
	case c.Kind == session.Noted:
		return false
	case j.VoidDescription(), j.VoidSummary():
		return true
	case j.Head.Erased != 0 && j.Head.Erased != j.Position.Seq:
		return true
	case c.Kind == session.Anomaly:
		return c.Reason == session.CodeTurnRedacted || c.Reason == session.CodeTurnPruned
	default:
		return c.Kind == session.Duplicate && c.Turn != nil && c.Turn.Redacted != 0
	}
}

// saveEvery is the pause between two looks at the progress.
const saveEvery = 200 * time.Millisecond

// Run does the work that events ask for until ctx ends, and then returns nil. The next Run finds unfinished work by the
// stored progress.
func (e *Eraser) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	queues := []*queue{e.urgent, e.bulk, e.identities, e.later, e.proofs}
	for _, s := range e.stampers {
		queues = append(queues, s.queue)
	}
	for _, q := range queues {
		for range q.workers {
			workers.Go(func() { q.work(ctx, e) })
		}
	}
	for e.saveAll(ctx); pause.For(ctx, saveEvery); e.saveAll(ctx) {
	}
	last, cancel := lastly(ctx)
	defer cancel()
	for _, p := range e.parts {
		_ = e.save(last, p) // if it fails, the next Run begins a little earlier
	}
	workers.Wait()
	return nil
}

func (e *Eraser) saveAll(ctx context.Context) {
	for _, p := range e.parts {
		if err := e.save(ctx, p); err != nil && ctx.Err() == nil {
			e.cfg.Logger.Warn("the eraser's progress can't be stored; it is tried again",
				"partition", p.number, "err", err)
		}
	}
}

// lastly returns a context for the notes that are written after ctx has ended.
func lastly(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
}
