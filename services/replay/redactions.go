package replay

import (
	"context"
	"hash/fnv"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// redactions knows whose texts may not be printed: the turns that were redacted, with all their versions, and the
// sessions that were erased. It reads the log once, the headers of all events and the bodies of those that matter, and
// then follows it. Its memory grows with redactions, corrections and links, not with the log.
type redactions struct {
	log    *jetlog.Log
	logger *slog.Logger
	// read says of each partition how far it is.
	read []jetlog.Watermark

	mu         sync.RWMutex
	sessions   map[string]*losses
	identities map[string]bool // the erased ones
	links      []link
}

// link is an event that links a session. Its id, of which this is a hash, depends on the identity, so that the body
// need not be read to find the links of an identity.
type link struct {
	session string
	id      uint64
}

// losses is what a session has lost. Versions joins the versions of a corrected turn, since a redaction of any of them
// covers the others.
type losses struct {
	erased   bool
	turns    map[uuid.UUID]bool
	versions map[uuid.UUID][]uuid.UUID
}

func newRedactions(log *jetlog.Log, logger *slog.Logger) *redactions {
	return &redactions{
		log: log, logger: logger, read: make([]jetlog.Watermark, log.Partitions()),
		sessions: map[string]*losses{}, identities: map[string]bool{},
	}
}

// covers reports whether the text of any of these turns may not be printed.
func (r *redactions) covers(session string, turns ...uuid.UUID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	lost := r.sessions[session]
	return lost != nil &&
		(lost.erased || slices.ContainsFunc(turns, func(id uuid.UUID) bool { return lost.turns[id] }))
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
		relevant := events.WithdrawalOf(m.Type()) != events.WithdrawsNothing
		if m.Type() == events.TypeSessionLinked {
			relevant = r.noteLink(m)
		}
		if !relevant {
			continue
		}
		if err := r.withdraw(ctx, m.Position); err != nil {
			return err
		}
	}
	return nil
}

// noteLink notes a link, and reports whether any identity was erased by then: the link may be to that identity.
func (r *redactions) noteLink(m jetlog.Message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if session, identity, err := events.ParseSubject(m.Subject); err == nil && !identity {
		r.links = append(r.links, link{session, hashOf(m.ID())})
	}
	return len(r.identities) > 0
}

// withdraw notes what the event at a position takes away from readers.
func (r *redactions) withdraw(ctx context.Context, at events.Position) error {
	e, found, err := r.log.At(ctx, at)
	if err != nil || !found {
		return err
	}
	switch f := e.Fact.(type) {
	case *events.TurnRedacted:
		r.lose(f.SessionID, func(lost *losses) {
			lost.cover(f.TurnID)
			for _, t := range f.Tombstones {
				lost.cover(t.TurnID)
			}
		})
	case *events.TurnCorrected:
		r.lose(f.SessionID, func(lost *losses) { lost.join(f.TurnID, f.ReplacesTurnID) })
	case *events.SessionErased:
		r.erase(f.SessionID)
	case *events.SessionLinked:
		return r.linked(ctx, f)
	case *events.IdentityErased:
		return r.eraseIdentity(ctx, f.IdentityID)
	case nil, *events.TurnStarted, *events.TurnFinalized, *events.SessionReset, *events.LinkRefused,
		*events.ErasureReceipt:
		// takes nothing away
	}
	return nil
}

// lose changes what a session has lost, unless it has lost everything.
func (r *redactions) lose(session string, change func(*losses)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := r.sessions[session]
	if lost == nil {
		lost = &losses{turns: map[uuid.UUID]bool{}, versions: map[uuid.UUID][]uuid.UUID{}}
		r.sessions[session] = lost
	}
	if !lost.erased {
		change(lost)
	}
}

func (r *redactions) erase(session string) {
	r.lose(session, func(lost *losses) { *lost = losses{erased: true} })
}

// cover covers a turn and all versions of it that corrections have named.
func (l *losses) cover(id uuid.UUID) {
	if l.turns[id] {
		return
	}
	l.turns[id] = true
	for _, other := range l.versions[id] {
		l.cover(other)
	}
}

// join notes that one turn was said to replace another. A correction that came too late for the fold counts too: it may
// say again what the redacted turn said.
func (l *losses) join(id, replaced uuid.UUID) {
	l.versions[id] = append(l.versions[id], replaced)
	l.versions[replaced] = append(l.versions[replaced], id)
	if l.turns[id] || l.turns[replaced] {
		delete(l.turns, id)
		l.cover(id)
		l.cover(replaced)
	}
}

// linked erases a session that is linked to an identity which was erased.
func (r *redactions) linked(ctx context.Context, f *events.SessionLinked) error {
	r.mu.RLock()
	erased := r.identities[f.IdentityID]
	r.mu.RUnlock()
	if !erased {
		return nil
	}
	owner, err := ownerOf(ctx, r.log, f.SessionID)
	if err == nil && owner == f.IdentityID {
		r.erase(f.SessionID)
	}
	return err
}

// eraseIdentity erases all sessions that are linked to an identity: those whose links were met by now, in any
// partition. linked erases the others when it meets their links.
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

// linkedTo returns the sessions that are linked to an identity.
func (r *redactions) linkedTo(ctx context.Context, identity string) (map[string]bool, error) {
	r.mu.RLock()
	links := r.links // only ever added to
	r.mu.RUnlock()
	out := map[string]bool{}
	for _, l := range links {
		wanted := events.SessionLinked{SessionID: l.session, IdentityID: identity}
		if out[l.session] || l.id != hashOf(wanted.EventID()) {
			continue
		}
		owner, err := ownerOf(ctx, r.log, l.session)
		if err != nil {
			return nil, err
		}
		if owner == identity {
			out[l.session] = true
		}
	}
	return out, nil
}

// ownerOf returns the identity of a session, or "". As in the fold the first link stands: a later link to another
// identity is an anomaly, and does not make the session that identity's to read.
func ownerOf(ctx context.Context, log *jetlog.Log, session string) (string, error) {
	for e, err := range log.Session(ctx, session, 0, math.MaxUint64) {
		if err != nil {
			return "", err
		}
		if f, linked := e.Fact.(*events.SessionLinked); linked {
			return f.IdentityID, nil
		}
		if _, erased := e.Fact.(*events.SessionErased); erased {
			return "", nil
		}
	}
	return "", nil
}

func hashOf(eventID string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(eventID))
	return h.Sum64()
}
