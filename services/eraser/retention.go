package eraser

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
)

// RetentionConfig of a Retention.
type RetentionConfig struct {
	Rules conversation.Rules
	// Anonymous is the silence after which an anonymous session leaves the log, Linked
	// the age at which turns of linked sessions are redacted; 0 is never.
	Anonymous, Linked time.Duration
	// Redact redacts a turn of a linked session.
	Redact func(ctx context.Context, sessionID string, turn uuid.UUID) error
	// Forget, where not nil, tells a view that keeps a row of each event which events of
	// a session leave the log. It calls purge, which takes them out, while it sees to it
	// that nobody who reads the log brings them back. Where it fails before that they stay
	// for now.
	Forget func(
		ctx context.Context, sessionID string, partition int, gone []uint64, purge func(context.Context) error,
	) error
	// Every is the pause between two sweeps; 1 h by default.
	Every  time.Duration
	Now    func() time.Time
	Logger *slog.Logger
}

// Retention takes out of the log what is too old. It goes by the times that the log
// recorded, and remembers up to where it has looked: a session that can go has its last
// event behind that.
type Retention struct {
	log   Log
	notes *jetlog.Notes
	cfg   RetentionConfig
	turn  sync.Mutex // one sweep at a time
}

var _ services.Retention = (*Retention)(nil)

// NewRetention makes a retention; it does no I/O.
func NewRetention(log Log, notes *jetlog.Notes, cfg RetentionConfig) *Retention {
	if cfg.Every <= 0 {
		cfg.Every = time.Hour
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Rules.Slim = true
	return &Retention{log: log, notes: notes, cfg: cfg}
}

// sweepAgain is the pause after a sweep that failed, such as the first of a process whose
// audit tables are not open yet.
const sweepAgain = time.Minute

// Run sweeps from time to time until ctx ends; then it returns nil.
func (r *Retention) Run(ctx context.Context) error {
	for {
		next := r.cfg.Every
		if _, err := r.Sweep(ctx, false); err != nil && ctx.Err() == nil {
			r.cfg.Logger.Warn("what is too old stays for now; it is tried again", "err", err)
			next = min(next, sweepAgain)
		}
		if !pause(ctx, next) {
			return nil
		}
	}
}

// Sweep takes out what is too old, or with dry only counts it.
func (r *Retention) Sweep(ctx context.Context, dry bool) (services.Swept, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	var out services.Swept
	now := r.cfg.Now()
	// What a rule waits for in a partition, such as a view, holds up no other.
	err := errors.Join(
		r.rule(
			ctx, sweep{rule: "anonymous", before: now.Add(-r.cfg.Anonymous), dry: dry, session: r.anonymous},
			r.cfg.Anonymous, &out,
		),
		r.rule(
			ctx, sweep{rule: "linked", before: now.Add(-r.cfg.Linked), dry: dry, session: r.linked}, r.cfg.Linked, &out,
		),
	)
	if !dry && out != (services.Swept{}) {
		r.cfg.Logger.Info(
			"what was too old is gone", "sessions", out.Sessions, "events", out.Events, "linked_sessions",
			out.LinkedSessions, "turns", out.Turns,
		)
	}
	return out, err
}

// rule sweeps all partitions by one rule, each by itself, and gives the first error; 0 is
// never.
func (r *Retention) rule(ctx context.Context, s sweep, after time.Duration, out *services.Swept) error {
	if after <= 0 {
		return nil
	}
	var first error
	for s.partition = range r.log.Partitions() {
		err := r.window(ctx, s, out)
		if err != nil && first == nil {
			first = fmt.Errorf("partition %d: %w", s.partition, err)
		}
		if ctx.Err() != nil || errors.Is(err, jetlog.ErrUnavailable) {
			break // nothing can be told of the others either
		}
	}
	return first
}

// sweep is one partition's part for one rule.
type sweep struct {
	rule      string
	partition int
	before    time.Time
	dry       bool
	session   func(ctx context.Context, s sweep, id string, cut uint64, out *services.Swept) error
}

// swept is what the notes keep of a rule in a partition.
type swept struct {
	Created time.Time `json:"created"`
	Seq     uint64    `json:"seq"`
}

// window looks at the sessions with events between where the last sweep ended and what
// is too old now.
func (r *Retention) window(ctx context.Context, s sweep, out *services.Swept) error {
	key := fmt.Sprintf("retention.%s.%d", s.rule, s.partition)
	at := swept{Created: r.log.Created(s.partition)}
	var stored swept
	if _, err := r.notes.Read(ctx, key, &stored); err != nil {
		return err
	}
	if stored.Created.Equal(at.Created) {
		at.Seq = stored.Seq
	}
	cut, err := r.log.SeqAt(ctx, s.partition, s.before)
	if err != nil || cut <= at.Seq {
		return err
	}
	ids, err := r.sessions(ctx, s.partition, at.Seq, cut)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.session(ctx, s, id, cut, out); err != nil {
			return err
		}
	}
	if s.dry {
		return nil
	}
	if err := r.log.SettlePurge(ctx, s.partition); err != nil {
		return err
	}
	at.Seq = cut
	return r.notes.Put(ctx, key, at)
}

// sessions gives those with events after a sequence and up to another, in log order.
func (r *Retention) sessions(ctx context.Context, partition int, after, upTo uint64) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	err := scan{
		log: r.log, partition: partition, after: after, gentle: true,
	}.until(ctx, upTo, func(m jetlog.Message) error {
		id, identity, err := events.ParseSubject(m.Subject)
		if err == nil && !identity && !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
		return nil
	})
	return out, err
}

// anonymous takes an anonymous session out that has been silent for too long. Markers of
// redactions and of an erasure stay, with what they rest on: without them a late retry
// would bring a text back.
func (r *Retention) anonymous(ctx context.Context, s sweep, id string, cut uint64, out *services.Swept) error {
	if last, err := r.log.Last(ctx, id); err != nil || last > cut {
		return err
	}
	state, left := conversation.New(id, r.cfg.Rules), conversation.New(id, r.cfg.Rules)
	var all, markers []uint64
	names := map[uint64][]uuid.UUID{}
	for e, err := range r.log.Session(ctx, id, 0, cut) {
		if err != nil {
			return err
		}
		c := state.Fold(e)
		_, receipt := e.Fact.(*events.ErasureReceipt)
		if c.Kind == conversation.TurnGone || c.Kind == conversation.Erased || receipt {
			markers = append(markers, e.Position.Seq)
			left.Fold(e)
		} else {
			all = append(all, e.Position.Seq)
			turn, replaces := conversation.Named(e)
			names[e.Position.Seq] = []uuid.UUID{turn, replaces}
		}
	}
	all = slices.DeleteFunc(all, func(seq uint64) bool {
		needed := slices.ContainsFunc(names[seq], func(turn uuid.UUID) bool { return lost(state, left, turn) })
		if needed {
			markers = append(markers, seq)
		}
		return needed
	})
	if state.Identity != "" || state.Erased != 0 || len(all) == 0 {
		return nil
	}
	out.Sessions++
	out.Events += len(all)
	if s.dry {
		return nil
	}
	purge := func(ctx context.Context) error { return r.purge(ctx, s.partition, id, all, markers) }
	if r.cfg.Forget == nil {
		return purge(ctx)
	}
	// First, since a session that has left the log is not found again.
	return r.cfg.Forget(ctx, id, s.partition, all, purge)
}

// lost tells whether a turn is redacted, and would not be by what is left of the session: a
// foreign publisher's redaction carries no tombstones, and rests on the turn's own events.
func lost(state, left *conversation.State, turn uuid.UUID) bool {
	t, stone := state.Turn(turn), left.Turn(turn)
	return t != nil && t.Gone != 0 && (stone == nil || stone.Gone == 0)
}

// purge takes events of a session out, and leaves its markers, which stand between them.
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
	return nil
}

// linked redacts the turns of a linked session that are too old.
func (r *Retention) linked(ctx context.Context, s sweep, id string, _ uint64, out *services.Swept) error {
	state := conversation.New(id, r.cfg.Rules)
	for e, err := range r.log.Session(ctx, id, 0, maxSeq) {
		if err != nil {
			return err
		}
		state.Fold(e)
	}
	if state.Identity == "" || state.Erased != 0 {
		return nil
	}
	found := false
	for _, t := range state.Turns {
		// The newest version stands for all.
		if t.Gone != 0 || t.ReplacedBy != uuid.Nil || !t.CreatedAt.Before(s.before) {
			continue
		}
		found = true
		out.Turns++
		if s.dry {
			continue
		}
		if err := r.cfg.Redact(ctx, id, t.ID); err != nil {
			return err
		}
	}
	if found {
		out.LinkedSessions++
	}
	return nil
}
