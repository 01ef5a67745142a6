package write

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
)

// rootFirst refuses to link a branch whose root is not linked yet: the link is judged there.
type rootFirst struct{ root string }

func (*rootFirst) Error() string { return "the root of the branch is to be linked first" }

// atRoot lets a link pass only if the session is no branch, or its root has the identity: also a link that the branch
// has, since the root may be erased.
func (w *writing) atRoot(st *session.State, identity string, decision decider) decide.Decision {
	if root := st.Fork().Root; root != "" && identity != "" && st.Erased == 0 && w.rooted != identity {
		return decide.Decision{Err: &rootFirst{root}}
	}
	return decision(st)
}

// linkedAtRoot links the root of a branch, if a decision was refused for want of that link. It reports whether the
// write may be decided again.
func (w *writing) linkedAtRoot(ctx context.Context, err error, identity, source string) (bool, error) {
	first, is := errors.AsType[*rootFirst](err)
	if !is {
		return false, err
	}
	_, err = w.LinkSession(ctx, first.root, identity, source)
	if errors.Is(err, decide.ErrSessionErased) {
		gone, lookup := w.log.IdentityErasedNow(ctx, identity)
		if err = cmp.Or(lookup, err); lookup == nil && gone == nil {
			err = decide.ErrRootErased
		}
	}
	if err != nil {
		return false, err
	}
	w.rooted = identity
	return true, nil
}

// linkBranches links the branches of a session to its identity, and theirs. An effect repeats what a crash leaves out.
func (s *Service) linkBranches(ctx context.Context, sessionID, identity string) error {
	_, root, err := s.writing(sessionID).branches(ctx)
	if err != nil {
		return err
	}
	return s.linkBelow(ctx, sessionID, root, identity, map[string]bool{sessionID: true})
}

// linkBelow links the branches of a session of a root. linked are the sessions that it does not link again.
func (s *Service) linkBelow(ctx context.Context, sessionID, root, identity string, linked map[string]bool) error {
	marks, _, err := s.writing(sessionID).branches(ctx)
	if err != nil {
		return err
	}
	for _, mark := range marks {
		if mark.Root != root || linked[mark.SessionID] {
			continue
		}
		made := false
		_, err := s.writing(mark.SessionID).answerSession(ctx, func(own *session.State) decide.Decision {
			if made = mark.Made(own) || own.Erased != 0; !made || own.Erased != 0 {
				return decide.Decision{RestsOn: own.Applied}
			}
			return decide.Link(own, identity, "")
		})
		if _, refused := errors.AsType[*decide.Refusal](err); refused {
			continue // linked elsewhere by a foreign publisher
		}
		if err == nil && made {
			linked[mark.SessionID] = true
			err = s.linkBelow(ctx, mark.SessionID, root, identity, linked)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// branches returns the marks of a session's branches in order, and the session's root.
func (w *writing) branches(ctx context.Context) (marks []session.Branch, root string, err error) {
	x, err := w.current(ctx)
	if err != nil {
		return nil, "", err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	marks = x.state.Branches()
	slices.SortFunc(marks, func(a, b session.Branch) int { return cmp.Compare(a.MarkedAt, b.MarkedAt) })
	return marks, x.state.RootID(), nil
}

// linksBranches links the branches of the session if the write has linked the session.
func (w *writing) linksBranches(ctx context.Context, identity string) error {
	if !slices.ContainsFunc(w.own.appends, span.links) {
		return nil
	}
	return w.linkBranches(ctx, w.id, identity)
}

// links reports whether the append links its session.
func (s span) links() bool {
	return slices.ContainsFunc(s.facts, func(f events.Fact) bool {
		_, links := f.(*events.SessionLinked)
		return links
	})
}
