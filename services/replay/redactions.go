package replay

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// redactions knows whose texts may not be printed: the turns that were redacted, with
// all their versions, and the sessions that were erased. It reads the log once, the
// headers alone and the bodies of what matters, and then follows it. Its memory grows
// with redactions and corrections, not with the log.
type redactions struct {
	log    *jetlog.Log
	logger *slog.Logger
	// read says of each partition how far it is.
	read []jetlog.Watermark

	mu         sync.RWMutex
	sessions   map[string]*gone
	identities map[string]bool
}

// gone is what a session has lost. Versions joins the versions of a corrected turn,
// since whichever is redacted takes the others with it.
type gone struct {
	erased   bool
	turns    map[uuid.UUID]bool
	versions map[uuid.UUID][]uuid.UUID
}

func newRedactions(log *jetlog.Log, logger *slog.Logger) *redactions {
	return &redactions{
		log: log, logger: logger, read: make([]jetlog.Watermark, log.Partitions()),
		sessions: map[string]*gone{}, identities: map[string]bool{},
	}
}

// covers tells whether a text of any of these turns may not be printed.
func (r *redactions) covers(session string, turns ...uuid.UUID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := r.sessions[session]
	return g != nil && (g.erased || slices.ContainsFunc(turns, func(id uuid.UUID) bool { return g.turns[id] }))
}

// reached waits until everything up to a position is known.
func (r *redactions) reached(ctx context.Context, at events.Position) error {
	return r.log.Reached(ctx, &r.read[at.Partition], at)
}

// run reads every partition and follows it until ctx ends.
func (r *redactions) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for k := range r.log.Partitions() {
		g.Go(func() error {
			for {
				err := r.follow(ctx, k)
				switch {
				case ctx.Err() != nil:
					return nil
				case errors.Is(err, jetlog.ErrStream), errors.Is(err, jetlog.ErrClosed):
					return err
				}
				r.logger.Warn("replay waits for the log", "partition", k, "err", err)
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	return g.Wait()
}

// follow reads on in a partition until something fails.
func (r *redactions) follow(ctx context.Context, k int) error {
	head, err := r.log.Head(ctx, k)
	if err != nil {
		return err
	}
	tail, err := r.log.Tail(ctx, k, r.read[k].At(), jetlog.TailOptions{HeadersOnly: true, MaxBatch: 4000})
	if err != nil {
		return err
	}
	defer tail.Close()
	var erased []string
	last := uint64(0)
	for {
		batch, err := r.next(ctx, tail, len(erased) > 0)
		if err != nil {
			return err
		}
		for _, m := range batch {
			identity, err := r.message(ctx, m)
			if err != nil {
				return err
			}
			if identity != "" {
				erased = append(erased, identity)
			}
		}
		if len(batch) > 0 {
			last = batch[len(batch)-1].Position.Seq
		}
		// A pass over all links is for all identities that were erased so far; until it
		// is done this partition counts as unread.
		if len(erased) > 0 {
			if last < head.Seq && len(batch) > 0 {
				continue
			}
			if err := r.eraseIdentities(ctx, erased); err != nil {
				return err
			}
			erased = nil
		}
		r.read[k].Advance(last)
	}
}

// next gives the next messages; where something waits, none if they don't come soon.
func (r *redactions) next(ctx context.Context, tail *jetlog.Tail, waits bool) ([]jetlog.Message, error) {
	if !waits {
		return tail.Next(ctx)
	}
	brief, cancel := context.WithTimeout(ctx, stillFor)
	defer cancel()
	batch, err := tail.Next(brief)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return batch, err
}

// message takes note of one event, and gives the identity that it erases, if it does.
func (r *redactions) message(ctx context.Context, m jetlog.Message) (identity string, err error) {
	switch m.Type() {
	case events.TypeTurnRedacted, events.TypeTurnCorrected, events.TypeSessionErased, events.TypeIdentityErased:
	case events.TypeSessionLinked:
		if !r.anyIdentity() {
			return "", nil
		}
	default:
		return "", nil
	}
	e, found, err := r.log.At(ctx, m.Position)
	if err != nil || !found {
		return "", err
	}
	switch f := e.Fact.(type) {
	case *events.TurnRedacted:
		r.redact(f)
	case *events.TurnCorrected:
		r.join(f)
	case *events.SessionErased:
		r.erase(f.SessionID)
	case *events.SessionLinked:
		if err := r.linked(ctx, f.SessionID, f.IdentityID, e.Position.Seq); err != nil {
			return "", err
		}
	case *events.IdentityErased:
		r.mu.Lock()
		r.identities[f.IdentityID] = true
		r.mu.Unlock()
		return f.IdentityID, nil
	}
	return "", nil
}

func (r *redactions) anyIdentity() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.identities) > 0
}

// of gives what a session has lost; the lock is held.
func (r *redactions) of(session string) *gone {
	g := r.sessions[session]
	if g == nil {
		g = &gone{turns: map[uuid.UUID]bool{}, versions: map[uuid.UUID][]uuid.UUID{}}
		r.sessions[session] = g
	}
	return g
}

func (r *redactions) erase(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.of(session) = gone{erased: true}
}

// redact covers a turn, the versions that the redaction names, and those that
// corrections have named or will name.
func (r *redactions) redact(f *events.TurnRedacted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.of(f.SessionID)
	if g.erased {
		return
	}
	g.cover(f.TurnID)
	for _, t := range f.Tombstones {
		g.cover(t.TurnID)
	}
}

func (g *gone) cover(id uuid.UUID) {
	if g.turns[id] {
		return
	}
	g.turns[id] = true
	for _, other := range g.versions[id] {
		g.cover(other)
	}
}

// join notes that one turn was said to replace another. One that came too late for
// the fold counts too: it may say again what the redacted turn said.
func (r *redactions) join(f *events.TurnCorrected) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.of(f.SessionID)
	if g.erased {
		return
	}
	g.versions[f.TurnID] = append(g.versions[f.TurnID], f.ReplacesTurnID)
	g.versions[f.ReplacesTurnID] = append(g.versions[f.ReplacesTurnID], f.TurnID)
	if g.turns[f.TurnID] || g.turns[f.ReplacesTurnID] {
		delete(g.turns, f.TurnID)
		g.cover(f.TurnID)
		g.cover(f.ReplacesTurnID)
	}
}

// linked erases a session that is linked to an identity which was erased.
func (r *redactions) linked(ctx context.Context, session, identity string, upTo uint64) error {
	r.mu.RLock()
	erased := r.identities[identity]
	r.mu.RUnlock()
	if !erased {
		return nil
	}
	owner, err := linkOf(ctx, r.log, session, upTo)
	if err == nil && owner == identity {
		r.erase(session)
	}
	return err
}

// eraseIdentities erases all sessions that are linked to some identities.
func (r *redactions) eraseIdentities(ctx context.Context, identities []string) error {
	heads, err := headsOf(ctx, r.log)
	if err != nil {
		return err
	}
	sessions, err := linkedTo(ctx, r.log, heads, identities)
	if err != nil {
		return err
	}
	for session := range sessions {
		r.erase(session)
	}
	return nil
}
