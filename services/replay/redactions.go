package replay

import (
	"context"
	"hash/fnv"
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
// with redactions, corrections and links, not with the log.
type redactions struct {
	log    *jetlog.Log
	logger *slog.Logger
	// read says of each partition how far it is.
	read []jetlog.Watermark

	mu         sync.RWMutex
	sessions   map[string]*gone
	identities map[string]bool
	links      []link
}

// link is an event that links a session: to whom, its id tells who asks (id is a hash of
// it), so that its body is not read.
type link struct {
	session string
	id      uint64
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
			return jetlog.Follow(ctx, r.log, jetlog.Following{
				Partition: k, Options: jetlog.TailOptions{HeadersOnly: true, MaxBatch: 4000},
				Mark: &r.read[k], Read: r.note, Pause: time.Second,
				Warn: func(err error) { r.logger.Warn("replay waits for the log", "partition", k, "err", err) },
			})
		})
	}
	return g.Wait()
}

// note takes note of events.
func (r *redactions) note(ctx context.Context, batch []jetlog.Message) error {
	for _, m := range batch {
		if err := r.message(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// message takes note of one event.
func (r *redactions) message(ctx context.Context, m jetlog.Message) error {
	relevant := events.WithdrawalOf(m.Type()) != events.WithdrawsNothing
	if m.Type() == events.TypeSessionLinked {
		relevant = r.noteLink(m)
	}
	if !relevant {
		return nil
	}
	e, found, err := r.log.At(ctx, m.Position)
	if err != nil || !found {
		return err
	}
	switch f := e.Fact.(type) {
	case *events.TurnRedacted:
		r.redact(f)
	case *events.TurnCorrected:
		r.join(f)
	case *events.SessionErased:
		r.erase(f.SessionID)
	case *events.SessionLinked:
		return r.linked(ctx, f)
	case *events.IdentityErased:
		return r.eraseIdentity(ctx, f.IdentityID)
	case nil, *events.TurnStarted, *events.TurnFinalized, *events.SessionReset, *events.LinkRefused, *events.ErasureReceipt:
		// takes nothing away
	}
	return nil
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

// noteLink notes a link, and tells whether any identity was erased by then: then it may
// be one of that.
func (r *redactions) noteLink(m jetlog.Message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if session, identity, err := events.ParseSubject(m.Subject); err == nil && !identity {
		r.links = append(r.links, link{session, hashOf(m.ID())})
	}
	return len(r.identities) > 0
}

// linked erases a session that is linked to an identity which was erased.
func (r *redactions) linked(ctx context.Context, f *events.SessionLinked) error {
	r.mu.RLock()
	erased := r.identities[f.IdentityID]
	r.mu.RUnlock()
	if !erased {
		return nil
	}
	owner, err := linkOf(ctx, r.log, f.SessionID)
	if err == nil && owner == f.IdentityID {
		r.erase(f.SessionID)
	}
	return err
}

// eraseIdentity erases all sessions that are linked to an identity: those whose links
// were met, in any partition. Of the others linked will know.
func (r *redactions) eraseIdentity(ctx context.Context, identity string) error {
	r.mu.Lock()
	r.identities[identity] = true
	r.mu.Unlock()
	sessions, err := r.linkedTo(ctx, identity)
	for session := range sessions {
		r.erase(session)
	}
	return err
}

// linkedTo gives the sessions that are linked to an identity.
func (r *redactions) linkedTo(ctx context.Context, identity string) (map[string]bool, error) {
	r.mu.RLock()
	links := r.links // only ever added to
	r.mu.RUnlock()
	out := map[string]bool{}
	for _, l := range links {
		if out[l.session] || l.id != hashOf((&events.SessionLinked{SessionID: l.session, IdentityID: identity}).EventID()) {
			continue
		}
		owner, err := linkOf(ctx, r.log, l.session)
		if err != nil {
			return nil, err
		}
		if owner == identity {
			out[l.session] = true
		}
	}
	return out, nil
}

func hashOf(eventID string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(eventID))
	return h.Sum64()
}
