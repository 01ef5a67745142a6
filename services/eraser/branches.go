package eraser

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// state folds a session as the log has it now.
func state(ctx context.Context, log Reader, rules conversation.Rules, id string) (*conversation.State, error) {
	return conversation.Folded(id, rules, log.Session(ctx, id, 0, maxSeq))
}

// branchesOf returns the sessions that were forked from a session, and whether they are branches of its root.
func branchesOf(
	ctx context.Context, log Reader, rules conversation.Rules, s *conversation.State,
) (out []*conversation.State, err error) {
	for _, id := range slices.Sorted(slices.Values(s.Branches())) {
		child, err := state(ctx, log, rules, id)
		if err != nil {
			return nil, err
		}
		// An erased branch has forgotten its root, and still leads to its own branches.
		if child.Fork().Root != "" || child.Erased != 0 {
			out = append(out, child)
		}
	}
	return out, nil
}

// eachBranch calls visit with the branches of a session. It goes on below a branch, to the branches of that one, if
// visit returns true. It visits no session twice, whatever a foreign publisher has marked.
func eachBranch(
	ctx context.Context, log Reader, rules conversation.Rules, s *conversation.State,
	visit func(branch *conversation.State) (below bool, err error),
) error {
	seen := map[string]bool{s.SessionID: true}
	for next := []*conversation.State{s}; len(next) > 0; next = next[1:] {
		children, err := branchesOf(ctx, log, rules, next[0])
		if err != nil {
			return err
		}
		for _, child := range children {
			if seen[child.SessionID] {
				continue
			}
			seen[child.SessionID] = true
			below, err := visit(child)
			if err != nil {
				return err
			}
			if below {
				next = append(next, child)
			}
		}
	}
	return nil
}

// living reports whether a session has a branch, at any depth, that is not erased.
func living(ctx context.Context, log Reader, rules conversation.Rules, s *conversation.State) (found bool, err error) {
	err = eachBranch(ctx, log, rules, s, func(branch *conversation.State) (bool, error) {
		found = found || branch.Erased == 0
		return !found, nil
	})
	return found, err
}

// relative is a session with the marks of its branches, which outlive it, and the receipt of its erasure.
type relative struct {
	*conversation.State
	marks   []*events.SessionBranched
	receipt string
}

func (e *Eraser) relative(ctx context.Context, id string) (relative, error) {
	r := relative{State: conversation.New(id, e.cfg.Rules)}
	for x, err := range e.log.Session(ctx, id, 0, maxSeq) {
		if err != nil {
			return r, err
		}
		change := r.Fold(x)
		if f, ok := x.Fact.(*events.SessionBranched); ok && change.Kind == conversation.Branched {
			r.marks = append(r.marks, f)
		}
		if f, ok := x.Fact.(*events.SessionErased); ok && change.Kind == conversation.Erased {
			r.receipt = f.ReceiptID
		}
	}
	return r, nil
}

// lost counts what the branches of a session lose by its erasure. A branch that is erased with the same receipt, since
// its identity is erased, loses turns too.
func (e *Eraser) lost(ctx context.Context, c *closed) (*services.SharedTurns, error) {
	branches, turns := map[string]bool{}, map[uuid.UUID]bool{}
	err := e.eachMark(ctx, c.SessionID, func(mark *events.SessionBranched, branch relative) {
		alive := branch.Erased == 0 && branch.Fork().Root == mark.Root
		if !alive && branch.receipt != c.ReceiptID || !c.before.IsOf(mark.Root) {
			return
		}
		for _, g := range mark.Segments {
			if g.SessionID == c.SessionID {
				for id := range c.before.SharedIDs(g) {
					branches[branch.SessionID], turns[id] = true, true
				}
			}
		}
	})
	return &services.SharedTurns{Branches: len(branches), Turns: len(turns)}, err
}

// eachMark calls visit with all branches below a session, at any depth, and the marks that made them.
func (e *Eraser) eachMark(
	ctx context.Context, session string, visit func(mark *events.SessionBranched, branch relative),
) error {
	seen := map[string]bool{session: true}
	top, err := e.relative(ctx, session)
	for next := top.marks; len(next) > 0 && err == nil; next = next[1:] {
		mark := next[0]
		if seen[mark.ChildSessionID] {
			continue
		}
		seen[mark.ChildSessionID] = true
		var branch relative
		if branch, err = e.relative(ctx, mark.ChildSessionID); err == nil {
			visit(mark, branch)
			next = append(next, branch.marks...)
		}
	}
	return err
}

// branchesAmong counts the sessions of an erased identity that were branches and shared turns of others.
func (e *Eraser) branchesAmong(ctx context.Context, sessions []linkedSession) (int, error) {
	members, out := map[string]bool{}, map[string]bool{}
	for _, s := range sessions {
		members[s.id] = true
	}
	for _, s := range sessions {
		r, err := e.relative(ctx, s.id)
		if err != nil {
			return 0, err
		}
		for _, mark := range r.marks {
			if members[mark.ChildSessionID] && len(mark.Segments) > 0 {
				out[mark.ChildSessionID] = true
			}
		}
	}
	return len(out), nil
}

// linkBranches repeats the link of a session on its branches. Each of these links asks for those of the next branches.
func (e *Eraser) linkBranches(ctx context.Context, j *job) (remainder, error) {
	s, err := state(ctx, e.log, e.cfg.Rules, j.session)
	if err != nil || s.Identity == "" {
		return remainder{}, err
	}
	return remainder{}, e.linkThose(ctx, s, s.Identity)
}

func (e *Eraser) linkThose(ctx context.Context, s *conversation.State, identity string) error {
	return eachBranch(ctx, e.log, e.cfg.Rules, s, func(branch *conversation.State) (below bool, err error) {
		if branch.Erased == 0 && branch.Identity == "" {
			_, err = e.append(ctx, &events.SessionLinked{SessionID: branch.SessionID, IdentityID: identity})
		}
		return branch.Erased != 0, err
	})
}

// linkBranch links a branch whose root was linked while it was forked.
func (e *Eraser) linkBranch(ctx context.Context, j *job) (remainder, error) {
	s, err := state(ctx, e.log, e.cfg.Rules, j.session)
	if err != nil || s.Fork().Root == "" || s.Identity != "" || s.Erased != 0 {
		return remainder{}, err
	}
	root, err := state(ctx, e.log, e.cfg.Rules, s.Fork().Root)
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
	for i := 0; i < len(members); i++ {
		s, err := state(ctx, e.log, e.cfg.Rules, members[i].id)
		if err != nil {
			return nil, err
		}
		children, err := branchesOf(ctx, e.log, e.cfg.Rules, s)
		if err != nil {
			return nil, err
		}
		for _, child := range children {
			if !known[child.SessionID] {
				known[child.SessionID] = true
				at := events.Position{Partition: events.Partition(child.SessionID, len(e.parts))}
				members = append(members, linkedSession{id: child.SessionID, number: len(members), at: at})
			}
		}
	}
	return members, nil
}
