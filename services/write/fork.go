package write

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// ForkSession records a branch of a session. The mark on the session decides what the branch is. The branch's first
// event goes into the log with the mark where both are in one partition; elsewhere after it. A mark without a branch,
// after a crash, is taken up by the next try. A mark whose branch is another one's, after a lost race, changes nothing
// (session.Made).
func (s *Service) ForkSession(ctx context.Context, c decide.ForkSession) (services.Session, error) {
	c, err := decide.NormalFork(c)
	if err != nil {
		return services.Session{}, err
	}
	made, err := s.forkAtOnce(ctx, c)
	if err != nil {
		return services.Session{}, err
	}
	mark, err := s.mark(ctx, c)
	if err != nil {
		return services.Session{}, err
	}
	out, err := s.begin(ctx, mark.Fork())
	out.Duplicate = out.Duplicate && !made
	return out, err
}

// atOnceTries is how often forks try to append their marks and branches at once, while others write to the session.
const atOnceTries = 3

// forking is a fork on its way into the log.
type forking struct {
	decide.ForkSession

	made bool
	err  error
}

// forkAtOnce appends the mark of a fork and the branch's first events in one atomic append, and reports whether it did.
// It does not where the branch is in another partition, where the fork is refused or was made already, or where others
// write to the session all the time. Forks of one session that come at once share an append: alone, each would lose
// races to the others (docs/decisions.md#forks-share-an-append).
func (s *Service) forkAtOnce(ctx context.Context, c decide.ForkSession) (made bool, err error) {
	if s.log.Partition(c.ChildID) != s.log.Partition(c.SessionID) {
		return false, nil
	}
	f := &forking{ForkSession: c, err: jetlog.ErrUnavailable}
	p := s.inFlight.pin(c.SessionID)
	defer s.inFlight.unpin(c.SessionID, p)
	share := func(waiting []*forking) int { return min(len(waiting), mostForks) }
	err = p.forks.Do(ctx, f, share, func(forks []*forking, _ func()) {
		// The others need the append, too, so it must not end when its caller gives up.
		err := s.forkTogether(context.WithoutCancel(ctx), forks)
		for _, f := range forks {
			f.err = err
		}
	})
	if err != nil {
		return false, jetlog.Unavailable("", err)
	}
	return f.made, f.err
}

// mostForks is how many forks share an append. Each is at most three events, and with its lineage some 10 KB.
const mostForks = 100

// forkTogether appends the marks and the branches of forks of one session, and notes which it made.
func (s *Service) forkTogether(ctx context.Context, forks []*forking) error {
	w := s.writing(forks[0].SessionID)
	var last *uint64
	for range atOnceTries {
		p, err := w.planner(ctx)
		if err != nil {
			return err
		}
		facts, planned, err := w.forkFacts(ctx, p, forks)
		if err != nil || len(facts) == 0 {
			return err
		}
		at := p.at.Seq
		if last == nil || *last > at {
			last = &at
		}
		_, err = s.log.Append(ctx, jetlog.Append{Facts: facts, Expect: last, BeginsOthers: true})
		conflict, moved := errors.AsType[*jetlog.Conflict](err)
		switch {
		case moved && conflict.Last > 0 && conflict.Last < at:
			last = &conflict.Last // the session's last event was erased
		case moved, errors.Is(err, jetlog.ErrBatchDuplicate):
			last = nil
		default:
			for _, f := range planned {
				f.made = err == nil
			}
			return err
		}
	}
	return nil
}

// forkFacts returns the marks of forks, each with the first events of its branch, and the forks that have some. Of
// forks with one request, or to one branch, the first has.
func (w *writing) forkFacts(
	ctx context.Context, p *planner, forks []*forking,
) (facts []events.Fact, planned []*forking, err error) {
	requests, children := map[string]bool{}, map[string]bool{}
	linked := sync.OnceValues(func() (string, error) { return w.rootIdentity(ctx, p.own.RootID()) })
	for _, f := range forks {
		if requests[f.RequestID] || children[f.ChildID] {
			continue
		}
		mark, refused, err := p.plan(ctx, f.ForkSession)
		if err != nil {
			return nil, nil, err
		}
		if mark == nil || refused != nil {
			continue
		}
		identity, err := linked()
		if err != nil {
			return nil, nil, err
		}
		branch := decide.Fork(session.New(f.ChildID, w.cfg.Rules), mark.Fork(), identity)
		facts, planned = append(append(facts, mark), branch.Facts...), append(planned, f)
		requests[f.RequestID], children[f.ChildID] = true, true
	}
	return facts, planned, nil
}

// mark returns the mark of a fork that stands.
func (s *Service) mark(ctx context.Context, c decide.ForkSession) (*events.SessionBranched, error) {
	w := s.writing(c.SessionID)
	p, err := w.planner(ctx)
	if err != nil {
		return nil, err
	}
	planned, refused, err := p.plan(ctx, c)
	if err != nil {
		return nil, err
	}
	defer w.pin()()
	v, err := w.run(ctx, w.deciding, func(st *session.State) decide.Decision {
		return c.On(st, planned, refused)
	})
	if err != nil {
		return nil, err
	}
	mark, _, err := factAt[*events.SessionBranched](ctx, s, v.position,
		"the mark of a fork is not where it was written")
	return mark, err
}

// planner makes the marks of forks, on all that the log held when it was made.
type planner struct {
	*writing

	// own is the session as it is with what it shares, and fork what made it.
	own  *session.State
	fork session.Fork
	at   events.Position
}

func (w *writing) planner(ctx context.Context) (*planner, error) {
	own, err := w.now(ctx, w.id)
	if err != nil {
		return nil, err
	}
	p := &planner{w, own, own.Fork(), events.Position{Partition: w.partition, Seq: own.Applied}}
	list, from, err := w.origins(ctx, p.fork)
	if err == nil && p.fork.Root != "" {
		own.Identity, err = w.lent(ctx, p.fork.Root)
	}
	if err != nil {
		return nil, err
	}
	own.Inherit(list, from, math.MaxInt)
	return p, nil
}

// plan makes the mark that a fork asks for, or says why there can be none. It makes none where the log has one of the
// request.
func (p *planner) plan(
	ctx context.Context, c decide.ForkSession,
) (mark *events.SessionBranched, refused, err error) {
	if _, marked := p.own.Branch(c.RequestID); marked {
		return nil, nil, nil
	}
	if c.IdentityID != "" && p.own.Identity == "" {
		gone, err := p.log.IdentityErasedNow(ctx, c.IdentityID)
		if err != nil || gone != nil {
			return nil, decide.ErrSessionErased, err
		}
	}
	if mark, refused = c.Mark(p.own, p.fork, p.at, time.Now()); refused != nil {
		return nil, refused, nil
	}
	refused, err = p.taken(ctx, c.ChildID)
	return mark, refused, err
}

// taken says why a session can't become a branch, or returns nil if it can.
func (w *writing) taken(ctx context.Context, id string) (refused, err error) {
	last, err := w.log.Seen(ctx, id)
	if err != nil || last == 0 {
		return nil, err
	}
	is, err := w.now(ctx, id)
	switch {
	case err != nil || is.Applied == 0:
		return nil, err
	case is.Erased != 0:
		return decide.ErrSessionErased, nil
	default:
		return decide.ErrSessionExists, nil
	}
}

// origins returns the segments of a branch with their sessions, as the log has them now.
func (s *Service) origins(
	ctx context.Context, fork session.Fork,
) (list []events.Segment, from []*session.State, err error) {
	list = fork.Segments()
	for _, g := range list {
		st, err := s.now(ctx, g.SessionID)
		if err != nil {
			return nil, nil, err
		}
		from = append(from, st)
	}
	return list, from, nil
}

// begin records the first event of a branch.
func (s *Service) begin(ctx context.Context, f *events.SessionForked) (services.Session, error) {
	identity, err := s.rootIdentity(ctx, f.Root)
	if err != nil {
		return services.Session{}, err
	}
	out, err := s.writing(f.SessionID).answerSession(ctx, func(own *session.State) decide.Decision {
		return decide.Fork(own, f, identity)
	})
	if err != nil || out.Identity != "" {
		return out, err
	}
	// A link of the tree that came meanwhile did not see the branch.
	if identity, err = s.rootIdentity(ctx, f.Root); err != nil || identity == "" {
		return out, err
	}
	linked, err := s.writing(f.SessionID).answerSession(ctx, func(own *session.State) decide.Decision {
		return decide.Link(own, identity, "")
	})
	linked.Duplicate = out.Duplicate
	return linked, err
}

// rootIdentity returns the identity of a root, or ErrSessionErased if that identity is erased.
func (s *Service) rootIdentity(ctx context.Context, root string) (string, error) {
	st, err := s.now(ctx, root)
	if err != nil || st.Identity == "" {
		return "", err
	}
	gone, err := s.log.IdentityErasedNow(ctx, st.Identity)
	if err == nil && gone != nil {
		err = decide.ErrSessionErased
	}
	return st.Lends(), err
}

// inherited returns the refusal of a write on a turn that the session shares; of another turn it returns err as it is.
func (s *Service) inherited(ctx context.Context, sessionID string, turn uuid.UUID, err error) error {
	refusal, is := errors.AsType[*decide.Refusal](err)
	if !is || refusal.Code != session.CodeTurnNotFound && refusal.Code != session.CodeTurnNotStarted &&
		refusal.Code != session.CodeTurnMismatch { // the turn's request computes to it where it stands
		return err
	}
	own, failed := s.now(ctx, sessionID)
	if failed != nil {
		return failed
	}
	list, from, failed := s.origins(ctx, own.Fork())
	if failed != nil {
		return failed
	}
	for i, g := range list {
		if from[i].Shares(own.Fork().Root, g, turn) {
			r := *decide.ErrTurnInherited
			r.Origin = &decide.TurnOrigin{SessionID: g.SessionID, TurnID: turn}
			return &r
		}
	}
	return err
}

// LastFork implements services.SessionWriter.
func (s *Service) LastFork(ctx context.Context, sessionID, prefix string) (last decide.ForkSession, err error) {
	_, err = s.writing(sessionID).looked(ctx, func(st *session.State) (d decide.Decision) {
		last.RequestID, last.ChildID = st.LastBranch(prefix)
		return d
	})
	return last, err
}
