// Package summarizer has a model summarise long sessions, as an effect of the log.
package summarizer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/effects"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
)

const (
	// newest turns are never summarised.
	newest = 10
	// atOnce is how many sessions are summarised at the same time, chunk how many turns a model is given at once, and
	// tries how often it is asked.
	atOnce, chunk, tries = 4, 50, 3
	// watched bounds the sessions of which the handler remembers when the next summary is due.
	watched = 100_000
)

// Sessions reads sessions.
type Sessions interface {
	Read(ctx context.Context, ask services.Ask) (services.Reading, error)
}

// Writer records summaries.
type Writer interface {
	SummarizeSession(ctx context.Context, c decide.Summarize) (services.Summary, error)
}

// Config of a Handler.
type Config struct {
	// Model writes summaries, and its name is kept with each.
	Model     services.Model
	Sessions  Sessions
	Summaries Writer
	// After is how many finalized turns that no summary covers ask for one; 20 by default.
	After int
	// Oldest bounds the age of turns that ask for a summary; a day by default. A session that was silent for longer is
	// summarised once it goes on.
	Oldest time.Duration
	// Timeout of one call of the model, a minute by default; Pause before it is called again, a second.
	Timeout, Pause time.Duration
	// Count counts the tokens of a text, for those who are told what a summary cost; optional.
	Count func(string) int
	// Done, if set, is called with the outcome of each try.
	Done   func(made bool)
	Now    func() time.Time
	Logger *slog.Logger
}

// Handler makes summaries. A model that fails holds up nothing but other summaries, one that hangs for the time of one
// call, and a summary that was given up is
// tried again with the session's next turn.
type Handler struct {
	cfg Config

	mu sync.Mutex
	// due has, by session, how many finalized turns of its own prompts show when the next summary is due.
	due *simplelru.LRU[string, int]
}

var _ effects.Handler = (*Handler)(nil)

// New makes a handler; it does no I/O.
func New(cfg Config) *Handler {
	cfg.After = cmp.Or(cfg.After, 20)
	cfg.Oldest = cmp.Or(cfg.Oldest, 24*time.Hour)
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	cfg.Pause = cmp.Or(cfg.Pause, time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Count == nil {
		cfg.Count = func(string) int { return 0 }
	}
	if cfg.Done == nil {
		cfg.Done = func(bool) {}
	}
	due, err := simplelru.NewLRU[string, int](watched, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &Handler{cfg: cfg, due: due}
}

// Name implements effects.Handler.
func (*Handler) Name() string { return "summaries" }

// Handle implements effects.Handler. It fails only if ctx ends.
func (h *Handler) Handle(ctx context.Context, batch []projections.Judged) error {
	asked := map[string]bool{}
	for i := range batch {
		if h.asks(&batch[i]) {
			asked[batch[i].SessionID] = true
		}
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for id := range asked {
		g.Go(func() error {
			h.session(ctx, id)
			return nil
		})
	}
	_ = g.Wait() // it has none
	return ctx.Err()
}

// asks reports whether an event may ask for a summary of its session.
func (h *Handler) asks(e *projections.Judged) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.Change.VoidsSummary || e.Change.Kind == session.Erased {
		h.due.Remove(e.SessionID)
	}
	answered := e.Change.Kind.Group() == session.GroupText && len(e.Change.Turns) == 0 &&
		events.TextsOf(e.Fact).Answer != nil
	if !answered && !e.Change.VoidsSummary ||
		h.cfg.Now().Sub(e.Time) > h.cfg.Oldest {
		return false
	}
	due, known := h.due.Get(e.SessionID)
	if !known && e.Head.Fork().Root == "" { // how many turns a branch shares is known when it is read
		due = h.cfg.After
	}
	return e.Head.ShownFinalized >= due
}

// session makes the summaries of a session that are due.
func (h *Handler) session(ctx context.Context, id string) {
	for replanned := 0; ctx.Err() == nil; {
		reading, err := h.cfg.Sessions.Read(ctx, services.Ask{SessionID: id, AllTurns: true})
		if err != nil {
			h.failed(ctx, id, err)
			return
		}
		state := reading.State
		p := h.plan(state)
		if p == nil {
			return
		}
		_, err = h.make(ctx, p)
		if _, refused := errors.AsType[*decide.Refusal](err); refused && replanned < tries {
			replanned++ // what the model has read has changed meanwhile
			continue
		}
		if err != nil {
			h.failed(ctx, id, err)
			h.remember(id, ownShown(state)+1)
			return
		}
		h.cfg.Done(true)
	}
}

func (h *Handler) failed(ctx context.Context, id string, err error) {
	if ctx.Err() == nil {
		h.cfg.Done(false)
		h.cfg.Logger.Warn("a session is not summarised; it is tried again with its next turn",
			"session_id", id, "err", err)
	}
}

func (h *Handler) remember(id string, due int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.due.Add(id, due)
}

// ownShown returns how many finalized turns prompts show, but for those that a branch shares.
func ownShown(s *session.State) int {
	n := s.ShownFinalized
	for _, t := range s.Turns {
		if _, _, shared := s.Origin(t, 0); shared && s.Shown(t) && t.Status == session.Finalized {
			n--
		}
	}
	return n
}

// plan is a summary to make: covered are all its turns, read those that the one before it does not cover.
type plan struct {
	session       string
	request       string
	covered, read []*session.Turn
	last          *events.SessionSummarized
	// standing is the summary of last.
	standing session.Summary
}

// plan returns the next summary of a session, or nil if none is due.
func (h *Handler) plan(s *session.State) *plan {
	if s.Erased != 0 || s.Expired(h.cfg.Now()) {
		return nil
	}
	var final []*session.Turn
	closed := -1 // the turns before the first one without an answer
	for _, t := range s.Turns {
		switch {
		case !s.Shown(t):
		case t.Status == session.Finalized:
			final = append(final, t)
		case closed < 0:
			closed = len(final)
		}
	}
	p := &plan{session: s.SessionID}
	from := p.behind(s, len(final))
	if missing := h.cfg.After - (len(final) - from); missing > 0 {
		h.remember(s.SessionID, ownShown(s)+missing)
		return nil
	}
	to := len(final) - newest
	if closed >= 0 {
		to = min(to, closed)
	}
	to = contextbuilder.WholeThrough(final, min(to, from+chunk))
	if to <= from {
		h.remember(s.SessionID, ownShown(s)+1)
		return nil
	}
	p.cover(s, final, from, to)
	return p
}

// behind lets the plan go on behind the standing summary that covers the most turns, but not more than most. It returns
// how many these are.
func (p *plan) behind(s *session.State, most int) (from int) {
	for _, m := range s.Standing() {
		if m.Fact != nil && m.Turns > from && m.Turns <= most {
			p.last, p.standing, from = m.Fact, m, m.Turns
		}
	}
	return from
}

func (p *plan) cover(s *session.State, final []*session.Turn, from, to int) {
	p.covered, p.read = final[:to], final[from:to]
	p.request = requestID(s, p.covered)
}

// make has the model write a summary, and records it.
func (h *Handler) make(ctx context.Context, p *plan) (out services.Written, err error) {
	f := events.SessionSummarized{SessionID: p.session, RequestID: p.request, Model: h.cfg.Model.Name()}
	var before events.SessionSummarized
	if p.last != nil {
		before = *p.last
	}
	q := quote(p.read, services.Neutral, before.SummaryNeutral)
	if f.SummaryNeutral, err = h.write(ctx, q); err != nil {
		return out, err
	}
	out.Usage = h.used(q, f.SummaryNeutral)
	if before.SummaryTranslated != "" || translated(p.read) {
		soFar := cmp.Or(before.SummaryTranslated, before.SummaryNeutral)
		q = quote(p.read, services.Translated, soFar)
		if f.SummaryTranslated, err = h.write(ctx, q); err != nil {
			return out, err
		}
		out.Usage = out.Usage.Plus(h.used(q, f.SummaryTranslated))
	}
	made, err := h.cfg.Summaries.SummarizeSession(ctx, decide.Summarize{
		ThroughTurnID: p.covered[len(p.covered)-1].ID, Read: idsOf(p.covered), Summary: f,
	})
	out.Summary = made.ID
	return out, err
}

// write asks the model until it writes a summary, a few times at most. A model that does not answer in time is asked
// again only with the session's next turn: the other sessions of the partition wait for this one.
func (h *Handler) write(ctx context.Context, q quoted) (text string, err error) {
	for try := range tries {
		if try > 0 && !pause.For(ctx, time.Duration(try)*h.cfg.Pause) {
			return "", errors.Join(err, ctx.Err())
		}
		if text, err = h.ask(ctx, q); err == nil || errors.Is(err, errSlow) || ctx.Err() != nil {
			return text, err
		}
	}
	return "", err
}

func translated(turns []*session.Turn) bool {
	for _, t := range turns {
		if t.Question != nil && t.Question.QuestionTranslated != "" ||
			t.Answer != nil && t.Answer.AnswerTranslated != "" {
			return true
		}
	}
	return false
}

func idsOf(turns []*session.Turn) []uuid.UUID {
	ids := make([]uuid.UUID, len(turns))
	for i, t := range turns {
		ids[i] = t.ID
	}
	return ids
}

// requestID is computed from what a summary covers, so that all processes that make it use the same, and from how often
// such a summary was void: its turns may be shown again, or be longer now.
func requestID(s *session.State, covered []*session.Turn) string {
	sum := sha256.New()
	for _, t := range covered {
		_, _ = sum.Write(t.ID[:])
	}
	for {
		id := "effect-" + promptVersion + "-" + hex.EncodeToString(sum.Sum(nil)[:16])
		if !s.Voided(events.SummaryID(s.SessionID, id)) {
			return id
		}
		_, _ = sum.Write([]byte("void"))
	}
}
