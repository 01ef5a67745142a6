package eraser

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// state folds a session as the log has it now.
func state(ctx context.Context, log Reader, rules session.Rules, id string) (*session.State, error) {
	return session.Folded(id, rules, log.Session(ctx, id, 0, maxSeq))
}

// relative is a session with the marks of its branches, which outlive it, and the receipt of its erasure. fork is its
// own fork, also when it is erased, until that event has left the log.
type relative struct {
	*session.State
	fork    session.Fork
	marks   []*events.SessionBranched
	receipt string
}

func relativeOf(ctx context.Context, log Reader, rules session.Rules, id string) (relative, error) {
	r := relative{State: session.New(id, rules)}
	for x, err := range log.Session(ctx, id, 0, maxSeq) {
		if err != nil {
			return r, err
		}
		change := r.Fold(x)
		if r.Erased == 0 {
			r.fork = r.Fork()
		}
		if f, ok := x.Fact.(*events.SessionBranched); ok && change.Kind == session.Branched {
			r.marks = append(r.marks, f)
		}
		if f, ok := x.Fact.(*events.SessionErased); ok && change.Kind == session.Erased {
			r.receipt = f.ReceiptID
		}
	}
	return r, nil
}

// made reports whether a mark made the session. Of an erased session whose fork has left the log nobody can tell: the
// mark is believed, since such a session has nothing left but its own marks, which are judged by the root that they
// state.
func (r relative) made(mark *events.SessionBranched) bool {
	return session.Made(mark, r.fork) || r.fork.ForkedAt == 0 && r.Erased != 0
}

// root returns the root of the session, or "" if it is erased and nobody can tell any more whether it was a branch.
func (r relative) root() string {
	if r.fork.ForkedAt == 0 && r.Erased != 0 {
		return ""
	}
	return cmp.Or(r.fork.Root, r.SessionID)
}

// eachBranch calls visit with the branches of a session, and the marks that made them. It goes on below a branch, to
// the branches of that one, if visit returns true. It visits no session twice. A mark that did not make its session
// (session.Made), or that states another root than that of the session where the walk began, changes nothing. It
// reads only the branches that concern is true of; nil reads all.
func eachBranch(
	ctx context.Context, log Reader, rules session.Rules, sessionID string,
	concern func(branch string) (bool, error),
	visit func(mark *events.SessionBranched, branch relative) (below bool, err error),
) error {
	seen := map[string]bool{sessionID: true}
	top, err := relativeOf(ctx, log, rules, sessionID)
	for next := top.ofRoot(top.root()); len(next) > 0 && err == nil; next = next[1:] {
		mark := next[0]
		if seen[mark.ChildSessionID] {
			continue
		}
		if concern != nil {
			if read, failed := concern(mark.ChildSessionID); failed != nil {
				return failed
			} else if !read {
				continue
			}
		}
		branch, failed := relativeOf(ctx, log, rules, mark.ChildSessionID)
		if failed != nil {
			return failed
		}
		if !branch.made(mark) {
			continue
		}
		seen[mark.ChildSessionID] = true
		var below bool
		if below, err = visit(mark, branch); below {
			next = append(next, branch.ofRoot(mark.Root)...)
		}
	}
	return err
}

// ofRoot returns the marks that state a root; all, where it is "".
func (r relative) ofRoot(root string) (marks []*events.SessionBranched) {
	for _, mark := range r.marks {
		if root == "" || mark.Root == root {
			marks = append(marks, mark)
		}
	}
	return marks
}

// living reports whether a session has a branch, at any depth, that is not erased.
func living(ctx context.Context, log Reader, rules session.Rules, sessionID string) (found bool, err error) {
	err = eachBranch(ctx, log, rules, sessionID, nil, func(_ *events.SessionBranched, branch relative) (bool, error) {
		found = found || branch.Erased == 0
		return !found, nil
	})
	return found, err
}

// lost counts what the branches of a session lose by its erasure. A branch that is erased with the same receipt, since
// its identity is erased, loses turns too.
func (e *Eraser) lost(ctx context.Context, c *closed) (*services.SharedTurns, error) {
	branches, turns := map[string]bool{}, map[uuid.UUID]bool{}
	err := e.eachBranch(ctx, c.SessionID, func(mark *events.SessionBranched, branch relative) (bool, error) {
		for _, g := range mark.Segments {
			if g.SessionID != c.SessionID || branch.Erased != 0 && branch.receipt != c.ReceiptID {
				continue
			}
			for id := range c.before.SharedIDs(mark.Root, g) {
				branches[branch.SessionID], turns[id] = true, true
			}
		}
		return true, nil
	})
	return &services.SharedTurns{Branches: len(branches), Turns: len(turns)}, err
}

func (e *Eraser) eachBranch(
	ctx context.Context, session string, visit func(*events.SessionBranched, relative) (below bool, err error),
) error {
	return eachBranch(ctx, e.log, e.cfg.Rules, session, nil, visit)
}

// branchesAmong counts the sessions of an erased identity that were branches and shared turns of others.
func (e *Eraser) branchesAmong(ctx context.Context, sessions []linkedSession) (int, error) {
	members, branches := map[string]relative{}, map[string]bool{}
	for _, s := range sessions {
		r, err := relativeOf(ctx, e.log, e.cfg.Rules, s.id)
		if err != nil {
			return 0, err
		}
		members[s.id] = r
	}
	for _, r := range members {
		for _, mark := range r.ofRoot(r.root()) {
			if branch, is := members[mark.ChildSessionID]; is && branch.made(mark) && len(mark.Segments) > 0 {
				branches[mark.ChildSessionID] = true
			}
		}
	}
	return len(branches), nil
}

// linkBranches repeats the link of a session on its branches. Each of these links asks for those of the next branches.
// A link that a foreign publisher wrote on a branch links the root, where it is judged; below, the root's link counts.
func (e *Eraser) linkBranches(ctx context.Context, j *job) (remainder, error) {
	s, err := state(ctx, e.log, e.cfg.Rules, j.session)
	if err != nil || s.Identity == "" {
		return remainder{}, err
	}
	identity := s.Identity
	if s.Fork().Root != "" {
		if identity, err = e.linkRoot(ctx, s); err != nil || identity == "" {
			return remainder{}, err
		}
	}
	return remainder{}, e.eachBranch(ctx, s.SessionID,
		func(_ *events.SessionBranched, branch relative) (below bool, err error) {
			if branch.Erased == 0 && branch.Identity == "" {
				_, err = e.append(ctx, &events.SessionLinked{SessionID: branch.SessionID, IdentityID: identity})
			}
			return branch.Erased != 0, err
		})
}

// linkRoot links the root of a linked branch if nobody has, and returns the identity that the root had before. A
// session to which no mark leads from its root is no branch of it.
func (e *Eraser) linkRoot(ctx context.Context, s *session.State) (identity string, err error) {
	root, err := state(ctx, e.log, e.cfg.Rules, s.Fork().Root)
	if err != nil {
		return "", err
	}
	if root.Identity != "" || root.Erased != 0 {
		return root.Identity, nil
	}
	marked := false
	err = e.eachBranch(ctx, root.SessionID, func(_ *events.SessionBranched, branch relative) (bool, error) {
		marked = marked || branch.SessionID == s.SessionID
		return !marked, nil
	})
	if err == nil && marked {
		_, err = e.append(ctx, &events.SessionLinked{SessionID: root.SessionID, IdentityID: s.Identity})
	}
	return "", err
}

// linkBranch links a branch whose root was linked while it was forked.
func (e *Eraser) linkBranch(ctx context.Context, j *job) (remainder, error) {
	s, err := state(ctx, e.log, e.cfg.Rules, j.session)
	if err != nil || s.Fork().Root == "" || s.Identity != "" || s.Erased != 0 {
		return remainder{}, err
	}
	// A root may have a mark for each of thousands of branches, and is read for none of them unless it was linked. One
	// that is linked from now on links its branches itself.
	root := &session.State{}
	if err = e.ownersNow(ctx, events.Partition(s.Fork().Root, len(e.parts))); err == nil &&
		e.cfg.Owners.Had(s.Fork().Root).Links {
		root, err = state(ctx, e.log, e.cfg.Rules, s.Fork().Root)
	}
	if err == nil && root.Identity != "" {
		_, err = e.append(ctx, &events.SessionLinked{SessionID: s.SessionID, IdentityID: root.Identity})
	}
	return remainder{}, err
}

// withBranches adds to the sessions of an identity their branches that are not linked yet.
func (e *Eraser) withBranches(ctx context.Context, members []linkedSession) ([]linkedSession, error) {
	known := map[string]bool{}
	for _, m := range members {
		known[m.id] = true
	}
	for _, m := range slices.Clone(members) {
		err := e.eachBranch(ctx, m.id, func(_ *events.SessionBranched, branch relative) (below bool, err error) {
			if known[branch.SessionID] {
				return false, nil // it is walked by itself
			}
			known[branch.SessionID] = true
			at := events.Position{Partition: events.Partition(branch.SessionID, len(e.parts))}
			members = append(members, linkedSession{id: branch.SessionID, number: len(members), at: at})
			return true, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return members, nil
}
