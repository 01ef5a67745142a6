package write

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// StartTurn records the start of a turn, and links the session to an identity if the command names one. The same
// session and request again return the same turn with its first question. A caller that is bound to an identity begins
// sessions that are linked to it, and reaches no others. Errors: a *decide.Refusal or
// *decide.Invalid, jetlog.ErrTooLarge, jetlog.ErrUnavailable.
func (s *Service) StartTurn(ctx context.Context, c decide.Start) (services.Turn, error) {
	c, dropped, err := s.cfg.Policy.NormalStart(c)
	if err != nil {
		return services.Turn{}, err
	}
	c = bound(ctx, c)
	w := s.writing(c.SessionID)
	w.dropped = dropped
	if c.IdentityID != "" {
		if err := w.mayBegin(ctx, c.IdentityID); err != nil {
			return services.Turn{}, err
		}
	}
	id := events.TurnID(c.SessionID, c.RequestID)
	decision := func(st *session.State) decide.Decision {
		if t := st.Turn(id); t != nil && (t.Question != nil || len(t.Extensions()) > 0) {
			w.question = t.Question
		}
		return c.On(st)
	}
	rooted := func(st *session.State) decide.Decision { return w.atRoot(st, c.IdentityID, decision) }
	t, err := w.turn(ctx, w.beginning, rooted)
	again, err := w.linkedAtRoot(ctx, err, c.IdentityID, c.SourceHash)
	if again {
		t, err = w.turn(ctx, w.deciding, rooted)
	}
	if err == nil {
		err = w.linksBranches(ctx, c.IdentityID)
	}
	return t, err
}

// bound has the start of a caller that is bound to an identity speak for it.
func bound(ctx context.Context, c decide.Start) decide.Start {
	if own := access.CallOf(ctx).Caller.IdentityID; own != "" {
		c.IdentityID, c.Bound = own, true
	}
	return c
}

// mayBegin refuses to begin a session for an identity that was erased, even if the session does not exist yet.
func (w *writing) mayBegin(ctx context.Context, identity string) error {
	if _, held := w.sessions.GetIfPresent(w.id); held {
		if of, err := w.hasIdentity(ctx); of || err != nil {
			return err
		}
	}
	gone, err := w.log.IdentityErasedNow(ctx, identity)
	switch {
	case err != nil:
		return err
	case gone == nil:
		w.known.livingIdentity = identity
		return nil
	}
	if of, err := w.hasIdentity(ctx); of || err != nil {
		return err
	}
	return decide.ErrSessionErased
}

// hasIdentity reports whether the session belongs to an identity.
func (w *writing) hasIdentity(ctx context.Context) (bool, error) {
	x, err := w.current(ctx)
	if err != nil {
		return false, err
	}
	d := x.decide(func(*session.State) decide.Decision { return decide.Decision{} })
	return d.head.Identity != "", nil
}

// FinalizeTurn records a turn's answer. A turn that is final already keeps its first answer. A malformed turn id names
// no turn.
func (s *Service) FinalizeTurn(ctx context.Context, c decide.Finalize) (services.Turn, error) {
	c, dropped, err := s.cfg.Policy.NormalFinalize(c)
	if err != nil {
		return services.Turn{}, err
	}
	if c.StartFirst, err = s.startFirst(c); err != nil {
		return services.Turn{}, err
	}
	w := s.writing(c.SessionID)
	w.dropped = dropped
	t, err := w.turn(ctx, w.deciding, func(st *session.State) decide.Decision {
		if t := st.Turn(c.TurnID); t != nil && (t.Question != nil || len(t.Extensions()) > 0) {
			w.question = t.Question
		}
		return c.On(st)
	})
	return t, s.inherited(ctx, c.SessionID, c.TurnID, err)
}

// ExtendTurn records that a half of a turn goes on. The first extension of an id stands.
func (s *Service) ExtendTurn(ctx context.Context, c decide.Extend) (services.Turn, error) {
	c, dropped, err := s.cfg.Policy.NormalExtend(c)
	if err != nil {
		return services.Turn{}, err
	}
	w := s.writing(c.SessionID)
	w.dropped = dropped
	t, err := w.turn(ctx, w.deciding, func(st *session.State) decide.Decision { return c.On(st) })
	return t, s.inherited(ctx, c.SessionID, c.TurnID, err)
}

// startFirst returns the start for a turn that was never started. It returns nil if the configuration does not allow
// that, or the command lacks what a start needs.
func (s *Service) startFirst(c decide.Finalize) (*decide.Start, error) {
	if !s.cfg.FinalizeWithoutStart || c.StartFirst == nil || c.RequestID == "" ||
		c.StartFirst.Question.QuestionNeutral == "" {
		return nil, nil //nolint:nilnil // no start is a valid answer
	}
	first := *c.StartFirst
	first.SessionID, first.RequestID = c.SessionID, c.RequestID
	start, _, err := s.cfg.Policy.NormalStart(first)
	return &start, err
}

// RedactTurn records that a turn, with all its versions, must never be shown again.
func (s *Service) RedactTurn(ctx context.Context, sessionID string, c decide.Redact) (services.Turn, error) {
	if err := decide.ValidIDs("session_id", sessionID); err != nil {
		return services.Turn{}, err
	}
	w := s.writing(sessionID)
	c.Partition = w.partition
	t, err := w.turn(ctx, w.deciding, func(st *session.State) decide.Decision {
		return w.keepingCalls(st, c.TurnID, "", c.On(st))
	})
	return t, s.inherited(ctx, sessionID, c.TurnID, err)
}

// CorrectTurn records a turn that takes the place of another.
func (s *Service) CorrectTurn(ctx context.Context, c decide.Correct) (services.Turn, error) {
	c, err := s.cfg.Policy.NormalCorrect(c)
	if err != nil {
		return services.Turn{}, err
	}
	w := s.writing(c.SessionID)
	old, err := w.correctable(ctx, c)
	if err != nil {
		return services.Turn{}, s.inherited(ctx, c.SessionID, c.TurnID, err)
	}
	t, err := w.turn(ctx, w.deciding, func(st *session.State) decide.Decision {
		if old == nil {
			d, _ := c.Refused(st)
			return d
		}
		if now := st.Turn(c.TurnID); now != nil && now.Status == old.Status && now.Last() != old.Last() {
			return decide.Decision{Err: errExtended}
		}
		return c.On(st, old)
	})
	if errors.Is(err, errExtended) {
		return s.CorrectTurn(ctx, c)
	}
	return t, err
}

// errExtended: the turn was extended after its texts were read, which a correction repeats.
var errExtended = errors.New("the turn was extended meanwhile")

// correctable returns the turn to correct with its texts, or nil if the log has the answer already. Only an extension
// changes texts, so they may be read before the decision.
func (w *writing) correctable(ctx context.Context, c decide.Correct) (*session.Turn, error) {
	d, answered, err := w.correction(ctx, c)
	if err != nil {
		return nil, err
	}
	if answered {
		_, err := w.answer(ctx, d)
		return nil, err
	}
	if err := w.texts(ctx, d.Turn); err != nil {
		return nil, err
	}
	if d.Turn.Question != nil && d.Turn.Answer != nil {
		return d.Turn, nil
	}
	// The turn's texts were erased since the decision: the redaction that erased them is the answer.
	if d, _, err = w.correction(ctx, c); err == nil && d.Err == nil {
		err = fmt.Errorf("%w: the turn's texts are not in the log", jetlog.ErrUnavailable)
	}
	return nil, cmp.Or(err, d.Err)
}

// correction decides a correction as far as that is possible without texts, on all that the log holds now. It reports
// whether the decision is final; if it is not, Turn is the turn to correct.
func (w *writing) correction(ctx context.Context, c decide.Correct) (d decided, final bool, err error) {
	return w.undecided(ctx, c.TurnID, func(st *session.State) (decide.Decision, bool) {
		return c.Refused(st)
	})
}

// undecided decides a command on a turn as far as refused does, on all that the log holds now. It reports whether the
// decision is final; if it is not, Turn is the turn.
func (w *writing) undecided(
	ctx context.Context, turn uuid.UUID, refused func(*session.State) (decide.Decision, bool),
) (d decided, final bool, err error) {
	d, err = w.looked(ctx, func(st *session.State) (d decide.Decision) {
		if d, final = refused(st); !final {
			d.Turn = st.Turn(turn)
		}
		return d
	})
	return d, final, err
}

// LinkSession records that a session belongs to an identity.
func (s *Service) LinkSession(ctx context.Context, sessionID, identityID, sourceHash string) (services.Session, error) {
	if err := decide.ValidIDs("session_id", sessionID, "identity_id", identityID); err != nil {
		return services.Session{}, err
	}
	w := s.writing(sessionID)
	link := func(st *session.State) decide.Decision { return decide.Link(st, identityID, sourceHash) }
	had := false
	decision := func(st *session.State) decide.Decision {
		had = had || st.Identity != ""
		return w.atRoot(st, identityID, link)
	}
	linked, err := w.answerSession(ctx, decision)
	again, err := w.linkedAtRoot(ctx, err, identityID, sourceHash)
	if again {
		before := had
		linked, err = w.answerSession(ctx, decision)
		linked.Duplicate = linked.Duplicate && before // the root's link may have brought this one
	}
	if err == nil {
		err = s.linkBranches(ctx, sessionID, identityID)
	}
	return linked, err
}

// ResetSession makes prompts and history start anew. It deletes nothing.
func (s *Service) ResetSession(ctx context.Context, sessionID, reason string) (services.Session, error) {
	if err := decide.ValidIDs("session_id", sessionID); err != nil {
		return services.Session{}, err
	}
	// A reset hides the events that the log holds when the caller asks for the reset, and no later ones.
	w := s.writing(sessionID)
	if _, err := w.refresh(ctx); err != nil {
		return services.Session{}, err
	}
	var before *uint64
	return w.answerSession(ctx, func(st *session.State) decide.Decision {
		if before == nil {
			at := st.ResetAt
			before = &at
		}
		if st.ResetAt != *before {
			// This call or another at the same time has reset the session already. Later events do not matter.
			return decide.Decision{RestsOn: st.ResetAt}
		}
		return decide.Reset(st, reason, w.partition)
	})
}

// DescribeSession records a session's title and metadata. A command without a request id is one of its own.
func (s *Service) DescribeSession(ctx context.Context, c decide.Describe) (services.Session, error) {
	if c.RequestID == "" {
		c.RequestID = uuid.NewString()
	}
	c, err := decide.NormalDescribe(c)
	if err != nil {
		return services.Session{}, err
	}
	w := s.writing(c.SessionID)
	return w.answerSession(ctx, func(st *session.State) decide.Decision {
		d := c.On(st, w.partition)
		if len(d.Facts) == 0 {
			d.StatedAt = w.own.last // another description may have come since
		}
		return d
	})
}

// texts reads from the log the texts of a turn, if the turn lacks those of a half. A tombstone has no texts.
func (w *writing) texts(ctx context.Context, t *session.Turn) error {
	if t.Status == session.Redacted || t.Question != nil && (t.Answer != nil || t.Final == 0) {
		return nil
	}
	_, err := w.fill(ctx, t, t.Sources())
	return err
}

// fill adds to a turn the texts that events at sequences brought, and returns those events that the log still has.
func (w *writing) fill(
	ctx context.Context, t *session.Turn, seqs []uint64,
) (brought []events.Recorded, err error) {
	var facts []events.Fact
	for _, seq := range seqs {
		e, found, err := w.log.At(ctx, events.Position{Partition: w.partition, Seq: seq})
		if err != nil {
			return nil, err
		}
		if found {
			brought, facts = append(brought, e), append(facts, e.Fact)
		}
	}
	w.cfg.Rules.Fill(t, facts...)
	return brought, nil
}
