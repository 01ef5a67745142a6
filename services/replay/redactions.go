package replay

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/owners"
)

// redactions knows which texts may not be printed: those of redacted turns, with all their versions, and those of
// erased sessions. The index of owners passes it the headers of all events; it reads the bodies of those that matter.
// Its memory grows with redactions and corrections, not with the log.
type redactions struct {
	log    *jetlog.Log
	owners *owners.Index

	mu       sync.RWMutex
	sessions map[string]*withdrawals
	// described is where the description stands that counts, by session.
	described  map[string]uint64
	identities map[string]bool // the erased ones
}

// withdrawals are the withdrawn turns of one session. Versions joins the versions of a corrected turn, since a
// redaction of any version covers the others.
type withdrawals struct {
	erased   bool
	turns    map[uuid.UUID]bool
	versions map[uuid.UUID][]uuid.UUID
	pruned   map[uuid.UUID]prune
}

// prune is the last prune of a turn, at a sequence. What it withdraws are the events before it, and later ones that may
// repeat them: a start, an answer unless the turn had none, and extensions of the same ids.
type prune struct {
	seq      uint64
	pending  bool
	extended map[string]bool
}

// hides reports whether an event of the turn of an id is withdrawn.
func (p prune) hides(e *events.Recorded, id uuid.UUID) bool {
	if e.Position.Seq < p.seq {
		return true
	}
	switch f := e.Fact.(type) {
	case *events.TurnStarted, *events.TurnRecorded:
		return true
	case *events.TurnFinalized:
		return !p.pending
	case *events.TurnExtended:
		return p.extended[f.ExtensionID]
	case *events.TurnCorrected: // one that made the turn
		return f.TurnID == id
	case *events.TurnPruned: // another one counts instead, or this one does not
		return e.Position.Seq != p.seq
	case nil, *events.TurnRedacted, *events.SessionReset, *events.LinkRefused,
		*events.SessionLinked, *events.SessionDescribed, *events.SessionForked, *events.SessionBranched,
		*events.SessionSummarized, *events.SessionErased, *events.IdentityErased, *events.ErasureReceipt:
	}
	return false
}

func newRedactions(log *jetlog.Log, index *owners.Index) *redactions {
	return &redactions{log: log, owners: index, sessions: map[string]*withdrawals{}, described: map[string]uint64{},
		identities: map[string]bool{}}
}

// covers reports whether the text of any of these turns may not be printed.
func (r *redactions) covers(session string, turns ...uuid.UUID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	lost := r.sessions[session]
	return lost != nil &&
		(lost.erased || slices.ContainsFunc(turns, func(id uuid.UUID) bool { return lost.turns[id] }))
}

// hides reports whether an event may not be printed, since one of these turns is redacted, or was pruned.
func (r *redactions) hides(e *events.Recorded, turns ...uuid.UUID) bool {
	if r.covers(e.SessionID, turns...) {
		return true
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	lost := r.sessions[e.SessionID]
	return lost != nil && slices.ContainsFunc(turns, func(id uuid.UUID) bool {
		p, pruned := lost.pruned[id]
		return pruned && p.hides(e, id)
	})
}

// note reads the events of a batch that matter.
func (r *redactions) note(ctx context.Context, batch []jetlog.Message) error {
	for _, m := range batch {
		relevant := events.WithdrawalOf(m.Type()) != events.WithdrawsNothing
		if m.Type() == events.TypeSessionLinked {
			relevant = r.erasedAny() // the link may be to an erased identity
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

// erasedAny reports whether any identity is known to be erased.
func (r *redactions) erasedAny() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.identities) > 0
}

// withdraw notes which texts the event at a position withdraws.
func (r *redactions) withdraw(ctx context.Context, at events.Position) error {
	e, found, err := r.log.At(ctx, at)
	if err != nil || !found {
		return err
	}
	switch f := e.Fact.(type) {
	case *events.TurnRedacted:
		r.changeWithdrawals(f.SessionID, func(lost *withdrawals) {
			lost.cover(f.TurnID)
			for _, t := range f.Tombstones {
				lost.cover(t.TurnID)
			}
		})
	case *events.TurnPruned:
		return r.prune(ctx, e, f)
	case *events.TurnCorrected:
		r.changeWithdrawals(f.SessionID, func(lost *withdrawals) { lost.join(f.TurnID, f.ReplacesTurnID) })
	case *events.SessionDescribed:
		return r.describe(ctx, e)
	case *events.SessionErased:
		r.erase(f.SessionID)
	case *events.SessionLinked:
		return r.linked(ctx, f)
	case *events.IdentityErased:
		return r.eraseIdentity(ctx, f.IdentityID)
	case nil, *events.TurnStarted, *events.TurnFinalized, *events.TurnRecorded, *events.TurnExtended,
		*events.SessionReset, *events.LinkRefused,
		*events.SessionForked, *events.SessionBranched, *events.SessionSummarized,
		*events.ErasureReceipt:
		// withdraws nothing
	}
	return nil
}

// changeWithdrawals changes the withdrawals of a session, unless the session is erased as a whole.
func (r *redactions) changeWithdrawals(session string, change func(*withdrawals)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := r.sessions[session]
	if lost == nil {
		lost = &withdrawals{turns: map[uuid.UUID]bool{}, versions: map[uuid.UUID][]uuid.UUID{},
			pruned: map[uuid.UUID]prune{}}
		r.sessions[session] = lost
	}
	if !lost.erased {
		change(lost)
	}
}

func (r *redactions) erase(session string) {
	r.changeWithdrawals(session, func(lost *withdrawals) { *lost = withdrawals{erased: true} })
}

// cover covers a turn and all versions of it that corrections have named.
func (l *withdrawals) cover(id uuid.UUID) {
	if l.turns[id] {
		return
	}
	l.turns[id] = true
	for _, other := range l.versions[id] {
		l.cover(other)
	}
}

// join notes that a correction named one turn as the replacement of another. A correction that came too late for the
// fold counts too: it may repeat what the redacted turn said.
func (l *withdrawals) join(id, replaced uuid.UUID) {
	l.versions[id] = append(l.versions[id], replaced)
	l.versions[replaced] = append(l.versions[replaced], id)
	if l.turns[id] || l.turns[replaced] {
		delete(l.turns, id)
		l.cover(id)
		l.cover(replaced)
	}
}

// prune notes a prune that counts: the fold says whether it does.
func (r *redactions) prune(ctx context.Context, e events.Recorded, f *events.TurnPruned) error {
	state, err := session.Folded(e.SessionID, session.Rules{Slim: true},
		r.log.Session(ctx, e.SessionID, 0, e.Position.Seq))
	if err != nil {
		return err
	}
	if t := state.Turn(f.TurnID); t == nil || t.PrunedAt() != e.Position.Seq {
		return nil
	}
	p := prune{e.Position.Seq, f.Pending(), map[string]bool{}}
	for _, x := range f.Parts {
		p.extended[x.ID] = true
	}
	r.changeWithdrawals(e.SessionID, func(lost *withdrawals) {
		if lost.pruned[f.TurnID].seq < p.seq {
			lost.pruned[f.TurnID] = p
		}
		for _, stone := range f.Tombstones[:len(f.Tombstones)-1] {
			lost.turns[stone.TurnID] = true
		}
	})
	return nil
}

// hidesDescription reports whether a description was replaced, or its session erased.
func (r *redactions) hidesDescription(session string, seq uint64) bool {
	r.mu.RLock()
	stands, known := r.described[session]
	r.mu.RUnlock()
	return known && seq != stands || r.covers(session)
}

// describe notes which description of a session counts: the fold says that where there are several.
func (r *redactions) describe(ctx context.Context, e events.Recorded) error {
	r.mu.RLock()
	stands, known := r.described[e.SessionID]
	r.mu.RUnlock()
	if known && stands != e.Position.Seq {
		state, err := session.Folded(e.SessionID, session.Rules{Slim: true},
			r.log.Session(ctx, e.SessionID, 0, e.Position.Seq))
		if err != nil {
			return err
		}
		stands = state.Description().DescribedAt
	} else {
		stands = e.Position.Seq
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.described[e.SessionID] = max(stands, r.described[e.SessionID])
	return nil
}

// linked erases a session if the identity that it is linked to was erased.
func (r *redactions) linked(ctx context.Context, f *events.SessionLinked) error {
	r.mu.RLock()
	erased := r.identities[f.IdentityID]
	r.mu.RUnlock()
	if !erased {
		return nil
	}
	s, err := upToLink(ctx, r.log, f.SessionID)
	if err == nil && s.Identity == f.IdentityID {
		r.erase(f.SessionID)
	}
	return err
}

// eraseIdentity erases all sessions that are linked to an identity, in any partition, as far as their links have been
// read. For links that are read later, linked erases the session.
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

// linkedTo returns the sessions that are linked to an identity, in any partition, with the root of each branch.
func (r *redactions) linkedTo(ctx context.Context, identity string) (roots map[string]string, err error) {
	roots = map[string]string{}
	for k := range r.log.Partitions() {
		sessions, err := r.owners.Sessions(ctx, identity, k)
		if err != nil {
			return nil, err
		}
		for _, session := range sessions {
			roots[session.Session] = session.Root
		}
	}
	return roots, nil
}

func upToLink(ctx context.Context, log *jetlog.Log, sessionID string) (*session.State, error) {
	return session.UpToLink(sessionID, log.Session(ctx, sessionID, 0, math.MaxUint64))
}
