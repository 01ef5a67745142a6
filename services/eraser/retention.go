package eraser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/feed"
	"github.com/turnledger/turnledger/services"
)

// RetentionConfig of a Retention.
type RetentionConfig struct {
	Rules session.Rules
	// Anonymous is the silence after which an anonymous session without a kind leaves the log; Conversation and
	// Response are that of sessions of a kind, also linked ones. Linked is the age at which turns of linked sessions
	// are redacted. 0 means never.
	Anonymous, Conversation, Response, Linked time.Duration
	// Redact redacts a turn of a linked session, and Erase erases a linked session.
	Redact func(ctx context.Context, sessionID string, turn uuid.UUID) error
	Erase  func(ctx context.Context, sessionID string) error
	// Forget, if set, tells a view that keeps a row for each event which events of a session leave the log. It calls
	// purge, which removes the events, while the view makes sure that no reader of the log restores their rows. If
	// Forget fails before it calls purge, the events stay for now.
	Forget func(
		ctx context.Context, sessionID string, partition int, gone []uint64, purge func(context.Context) error,
	) error
	Now    func() time.Time
	Logger *slog.Logger
}

// Retention removes old events from the log. It goes by the times that the log recorded, and remembers how far it has
// looked: a session that has become too old since has its last event after that point.
type Retention struct {
	log   Log
	notes *jetlog.Notes
	cfg   RetentionConfig
	// sweeping is held by the one sweep that may run.
	sweeping sync.Mutex
}

var _ services.Retention = (*Retention)(nil)

// NewRetention makes a retention; it does no I/O.
func NewRetention(log Log, notes *jetlog.Notes, cfg RetentionConfig) *Retention {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Rules.Slim = true
	return &Retention{log: log, notes: notes, cfg: cfg}
}

const (
	// sweepEvery is the pause between two sweeps.
	sweepEvery = time.Hour
	// sweepAgain is the pause after a sweep that failed, such as the first of a process whose audit tables are not
	// open yet.
	sweepAgain = time.Minute
)

// Run sweeps from time to time until ctx ends; then it returns nil.
func (r *Retention) Run(ctx context.Context) error {
	for {
		next := sweepEvery
		if _, err := r.Sweep(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Logger.Warn("what is too old stays for now; it is tried again", "err", err)
			next = sweepAgain
		}
		if !pause.For(ctx, next) {
			return nil
		}
	}
}

// sweep is the part of a sweep that one rule does, in one partition after the other.
type sweep struct {
	rule string
	// after is the age at which the rule applies, 0 for never; before is now minus that age.
	after     time.Duration
	before    time.Time
	dry       bool
	partition int
	// kind is that of the sessions that the rule is for. With described, the rule looks at a session only where a
	// description of it comes into the window, and holds it while it is active.
	kind      events.SessionKind
	described bool
	session   func(ctx context.Context, s *sweep, id string, cut uint64) error
	out       *services.Swept
	// held are sessions of the partition to look at again: they are too old and stay, since a branch shares their
	// turns, or the rule meets no later event of theirs.
	held []string
}

// Sweep removes what is too old.
func (r *Retention) Sweep(ctx context.Context) (services.Swept, error) {
	out, err := r.sweepAll(ctx, sweep{})
	if out != (services.Swept{}) {
		r.cfg.Logger.Info("what was too old is gone", "sessions", out.Sessions, "events", out.Events,
			"linked_sessions", out.LinkedSessions, "turns", out.Turns)
	}
	return out, err
}

// DrySweep counts what Sweep would remove.
func (r *Retention) DrySweep(ctx context.Context) (services.Swept, error) {
	return r.sweepAll(ctx, sweep{dry: true})
}

func (r *Retention) sweepAll(ctx context.Context, kind sweep) (out services.Swept, err error) {
	r.sweeping.Lock()
	defer r.sweeping.Unlock()
	// A rule that waits in a partition, for example for a view, holds up no other rule.
	for _, s := range []*sweep{
		{rule: "anonymous", after: r.cfg.Anonymous, session: r.silent},
		{rule: "conversation", after: r.cfg.Conversation, session: r.silent, kind: events.KindConversation},
		// Most sessions are of no kind, and this rule is always on: it reads those only that were described.
		{rule: "response", after: r.cfg.Response, session: r.silent, kind: events.KindResponse, described: true},
		{rule: "linked", after: r.cfg.Linked, session: r.linked},
	} {
		if s.after > 0 {
			s.before, s.dry, s.out = r.cfg.Now().Add(-s.after), kind.dry, &out
			err = errors.Join(err, r.rule(ctx, s))
		}
	}
	return out, err
}

// rule applies one rule to all partitions, continues after errors, and returns the first error.
func (r *Retention) rule(ctx context.Context, s *sweep) (first error) {
	for s.partition = range r.log.Partitions() {
		err := r.window(ctx, s)
		if err != nil && first == nil {
			first = fmt.Errorf("partition %d: %w", s.partition, err)
		}
		if ctx.Err() != nil || errors.Is(err, jetlog.ErrUnavailable) {
			break // the other partitions would fail too
		}
	}
	return first
}

// window looks at the sessions with events between the end of the last sweep and the events that are too old now.
func (r *Retention) window(ctx context.Context, s *sweep) error {
	key := fmt.Sprintf("retention.%s.%d", s.rule, s.partition)
	swept, _, err := progressOf(ctx, r.notes, key, r.log.Created(s.partition))
	if err != nil {
		return err
	}
	cut, err := r.log.SeqAt(ctx, s.partition, s.before)
	if err != nil || cut <= swept.Seq && len(swept.Held) == 0 {
		return err
	}
	cut = max(cut, swept.Seq)
	ids, seen := swept.Held, map[string]bool{} // each id once, in log order
	for _, id := range ids {
		seen[id] = true
	}
	s.held = nil
	from := events.Position{Partition: s.partition, Seq: swept.Seq}
	for m, err := range feed.Between(ctx, r.log, from, cut, headers, feed.Gentle) {
		if err != nil {
			return err
		}
		if s.described && m.Type() != events.TypeSessionDescribed {
			continue
		}
		if id, identity, err := events.ParseSubject(m.Subject); err == nil && !identity && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		if err := s.session(ctx, s, id, cut); err != nil {
			return err
		}
	}
	if s.dry {
		return nil
	}
	if err := r.log.SettlePurge(ctx, s.partition); err != nil {
		return err
	}
	swept.Seq, swept.Held = cut, s.held
	return r.notes.Put(ctx, key, swept)
}

// silent removes a session of the rule's kind that has been silent for too long. A linked one is erased; the anonymous
// rule leaves it. Of an anonymous one, markers of redactions and erasures stay, with the events that they rest on:
// without them a late retry would bring a text back.
func (r *Retention) silent(ctx context.Context, s *sweep, id string, cut uint64) error {
	last, err := r.log.Last(ctx, id)
	if err != nil {
		return err
	}
	if last > cut {
		if active, err := r.activeAfter(ctx, id, cut, last); active || err != nil {
			return errors.Join(err, r.hold(ctx, s, id))
		}
		cut = last
	}
	state, left := session.New(id, r.cfg.Rules), session.New(id, r.cfg.Rules)
	var markers []uint64
	var others []naming
	for e, err := range r.log.Session(ctx, id, 0, cut) {
		if err != nil {
			return err
		}
		c := state.Fold(e)
		_, receipt := e.Fact.(*events.ErasureReceipt)
		if c.Kind == session.TurnGone || c.Kind == session.Erased || receipt {
			markers = append(markers, e.Position.Seq)
			left.Fold(e)
		} else {
			turn, replaces := session.Named(e)
			others = append(others, naming{e.Position.Seq, turn, replaces})
		}
	}
	var all []uint64
	for _, n := range others {
		if lost(state, left, n.turn) || lost(state, left, n.replaces) {
			markers = append(markers, n.seq)
		} else {
			all = append(all, n.seq)
		}
	}
	another := state.Identity != "" && s.kind == "" || state.Description().Kind != s.kind
	if another || state.Erased != 0 || len(all) == 0 {
		return nil
	}
	if shares, err := living(ctx, r.log, r.cfg.Rules, id); shares || err != nil {
		s.held = append(s.held, id)
		return err
	}
	if state.Identity != "" {
		return r.eraseLinked(ctx, s, state)
	}
	s.out.Sessions++
	s.out.Events += len(all)
	if s.dry {
		return nil
	}
	purge := func(ctx context.Context) error { return r.purge(ctx, s.partition, id, all, markers) }
	if r.cfg.Forget == nil {
		return purge(ctx)
	}
	// Forget comes before the purge, since a session that has left the log is not found again.
	return r.cfg.Forget(ctx, id, s.partition, all, purge)
}

// hold has the next sweep look at an active session again, if the rule would not meet it by itself.
func (r *Retention) hold(ctx context.Context, s *sweep, id string) error {
	if !s.described {
		return nil
	}
	state, err := state(ctx, r.log, r.cfg.Rules, id)
	if err == nil && state.Description().Kind == s.kind {
		s.held = append(s.held, id)
	}
	return err
}

// eraseLinked erases a linked session of a kind.
func (r *Retention) eraseLinked(ctx context.Context, s *sweep, state *session.State) error {
	s.out.LinkedSessions++
	s.out.Turns += state.Finalized + state.Pending
	if s.dry {
		return nil
	}
	return r.cfg.Erase(ctx, state.SessionID)
}

// activeAfter reports whether anything but descriptions, summaries and branches of the session came after a cut: these
// prolong nothing.
func (r *Retention) activeAfter(ctx context.Context, id string, cut, last uint64) (bool, error) {
	for e, err := range r.log.Session(ctx, id, cut, last) {
		if err != nil || e.Type != events.TypeSessionDescribed && e.Type != events.TypeSessionBranched &&
			e.Type != events.TypeSessionSummarized {
			return true, err
		}
	}
	return false, nil
}

// naming is an event with the turns that it names.
type naming struct {
	seq            uint64
	turn, replaces uuid.UUID
}

// lost reports whether a redacted turn would no longer be redacted by the events that are left of the session: a
// foreign publisher's redaction carries no tombstones, and needs the turn's own events.
func lost(state, left *session.State, turn uuid.UUID) bool {
	t, stone := state.Turn(turn), left.Turn(turn)
	return t != nil && t.Redacted != 0 && (stone == nil || stone.Redacted == 0)
}

// purge removes events of a session, but leaves its markers, which stand between them.
func (r *Retention) purge(ctx context.Context, partition int, id string, all, markers []uint64) error {
	whole := all[len(all)-1]
	if len(markers) > 0 {
		whole = slices.Min(markers) - 1
	}
	if whole > 0 {
		if _, err := r.log.Purge(ctx, id, whole); err != nil {
			return err
		}
	}
	for _, seq := range all {
		if seq > whole {
			if _, err := r.log.Erase(ctx, events.Position{Partition: partition, Seq: seq}); err != nil {
				return err
			}
		}
	}
	if len(markers) > 0 {
		return nil
	}
	return dropLeft(ctx, r.notes, id)
}

// linked redacts the turns of a linked session that are too old.
func (r *Retention) linked(ctx context.Context, s *sweep, id string, _ uint64) error {
	state, err := session.Folded(id, r.cfg.Rules, r.log.Session(ctx, id, 0, maxSeq))
	if err != nil || state.Identity == "" || state.Erased != 0 {
		return err
	}
	before := s.out.Turns
	for _, t := range state.Turns {
		// The newest version stands for all versions.
		if t.Redacted != 0 || t.ReplacedBy != uuid.Nil || !t.CreatedAt.Before(s.before) {
			continue
		}
		if s.out.Turns++; s.dry {
			continue
		}
		if err := r.cfg.Redact(ctx, id, t.ID); err != nil {
			return err
		}
	}
	if s.out.Turns > before {
		s.out.LinkedSessions++
	}
	return nil
}
