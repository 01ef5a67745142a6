package eraser

import (
	"context"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
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

// living reports whether a session has a branch, at any depth, that is not erased.
func living(ctx context.Context, log Reader, rules conversation.Rules, s *conversation.State) (bool, error) {
	children, err := branchesOf(ctx, log, rules, s)
	for _, child := range children {
		if child.Erased == 0 {
			return true, nil
		}
		if found, err := living(ctx, log, rules, child); found || err != nil {
			return found, err
		}
	}
	return false, err
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
	children, err := branchesOf(ctx, e.log, e.cfg.Rules, s)
	if err != nil {
		return err
	}
	for _, child := range children {
		switch {
		case child.Erased != 0:
			err = e.linkThose(ctx, child, identity)
		case child.Identity == "":
			_, err = e.append(ctx, &events.SessionLinked{SessionID: child.SessionID, IdentityID: identity})
		}
		if err != nil {
			return err
		}
	}
	return nil
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
