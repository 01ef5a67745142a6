package answer

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/align"
)

// placeChat is placeCompletion for a chat that people see. The branch in which the message is recorded becomes the
// current one of the chat.
func (s *Service) placeChat(ctx context.Context, a *ask) (st step, err error) {
	c := a.Completion
	c.History = services.HistoryServer
	current, err := services.CurrentBranch(ctx, s.cfg.Sessions, c.Session)
	if err != nil {
		return st, err
	}
	if st, err = s.completedBefore(ctx, *a, current); !errors.Is(err, services.ErrNotRepeated) {
		return st, err
	}
	to, err := s.inChat(ctx, *a, current)
	if err != nil {
		return st, err
	}
	if to.again != nil {
		st = *to.again
	} else if st, err = s.addCompletion(ctx, *a, to); err != nil {
		return st, err
	}
	if to.fork != nil {
		to.session = to.fork.ChildID
	}
	if to.session == current {
		return st, nil
	}
	if current = to.session; current == c.Session {
		current = ""
	}
	_, err = s.cfg.SessionWrites.DescribeSession(ctx, decide.Describe{
		SessionID: c.Session, RequestID: chatForks + uuid.NewString(), CurrentBranch: &current,
	})
	return st, err
}

// chatForks begins the requests of forks that edits and new answers make.
const chatForks = "chat."

// inChat places what a client asks of a chat that goes on in a session. A message whose id the session has is that
// turn's question: with the same meaning it comes again, with another one it is an edit, for which a branch begins
// right before the turn. An answer is regenerated in such a branch, too.
func (s *Service) inChat(ctx context.Context, a ask, sessionID string) (to placed, err error) {
	chat := a.Completion.Chat
	r, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: sessionID, AllTurns: true, Pending: true})
	if err == nil {
		err = a.mayAddTo(r.State)
	}
	if err != nil {
		return to, err
	}
	to = placed{session: sessionID, begins: !r.State.Found(), reading: r}
	turns, of := s.turns(r, ^uint64(0), 0)
	if chat.Message == "" && !chat.Regenerates {
		to.rest = slices.DeleteFunc(slices.Clone(s.fresh(a, r, ^uint64(0))), func(i message.Item) bool {
			return !slices.ContainsFunc(turns, func(t align.Turn) bool { return makes(t, i.CallID()) })
		})
		return to, nil
	}
	n := turnOf(chat, r.State, of)
	if n < 0 {
		return s.newInChat(ctx, a, to, turns, of)
	}
	t := of[n]
	if t.Status == session.Redacted {
		return to, decide.ErrTurnRedacted
	}
	asked := question(turns[n].Items)
	to.rest, to.request = asked, t.RequestID
	if len(a.Input) > 0 {
		to.rest = a.Input[len(a.Input)-1:]
	}
	if len(asked) == 0 || len(to.rest) == 0 {
		return to, services.ErrNoInput
	}
	same := align.Same(asked[len(asked)-1], to.rest[len(to.rest)-1])
	if same && (!chat.Regenerates || t.Status == session.Pending) {
		to.again, err = s.stepOfTurn(ctx, r, t)
		return to, err
	}
	h := history{Reading: r, of: of, with: align.Shared{Turns: n}}
	var last *session.Turn
	if n > 0 {
		last = of[n-1]
	}
	for again := 0; ; again++ {
		h.fork = s.forkAt(r.State, last, align.Digest(to.rest[0]), again)
		h.fork.RequestID = chatForks + strings.TrimPrefix(h.fork.RequestID, inputForks)
		b, marked := r.State.Branch(h.fork.RequestID)
		if !marked {
			fork := h.behindShared()
			fork.IdentityID, to.fork, to.after, to.none = a.Identity, &fork, 0, true
			return to, nil
		}
		if there, err := s.inBranchOfChat(ctx, a, b, to); err != nil || there.session == b.SessionID {
			return there, err
		}
	}
}

// inBranchOfChat places a message in a branch that was made for one like it; or leaves it where it was, if the branch
// is gone, or has an answer where another one is wanted.
func (s *Service) inBranchOfChat(
	ctx context.Context, a ask, b session.Branch, to placed,
) (placed, error) {
	r, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: b.SessionID, AllTurns: true, Pending: true})
	if err != nil || !b.Made(r.State) || r.State.Erased != 0 {
		return to, err
	}
	if err = a.mayAddTo(r.State); err != nil {
		return to, err
	}
	own := slices.IndexFunc(r.State.Turns, func(t *session.Turn) bool {
		_, _, inherited := r.State.Origin(t, r.Position.Partition)
		return !inherited
	})
	there := to
	there.session, there.begins, there.reading = b.SessionID, false, r
	if own < 0 {
		there.none = true
		return there, nil
	}
	t := r.State.Turns[own]
	chain := r.State.Chain(t)
	switch t = chain[len(chain)-1]; {
	case t.Status == session.Redacted:
		return to, decide.ErrTurnRedacted
	case a.Completion.Chat.Regenerates && t.Status != session.Pending:
		return to, nil
	}
	there.again, err = s.stepOfTurn(ctx, r, t)
	return there, err
}

// newInChat places a message that the session does not have.
func (s *Service) newInChat(
	ctx context.Context, a ask, to placed, turns []align.Turn, of []*session.Turn,
) (placed, error) {
	said := func(i message.Item) bool { return i.ByAssistant() && i.Words() != "" }
	switch {
	case len(a.Input) == 0:
		return to, services.ErrNoInput
	case !slices.ContainsFunc(a.Input, said):
		to.rest = a.Input[len(a.Input)-1:]
		return to, nil
	}
	a.Input = asRecorded(a.Completion.Chat, a.Input, turns, of)
	with := align.Chat(turns, align.Input{Items: a.Input, IDs: make([]string, len(a.Input))})
	if with.Ends || with.Diverges || with.Rest == len(a.Input) {
		placed, err := s.aligned(ctx, a)
		return placed, err
	}
	to.rest, to.after = a.Input[with.Rest:], to.reading.State.LastText()
	to.none = to.after == 0
	return to, nil
}

// turn returns which of the turns of a session a call is about, or -1 for none: of a corrected one its newest version.
func turnOf(c *services.ChatTurn, state *session.State, of []*session.Turn) int {
	for _, t := range slices.Backward(state.Turns) {
		if t.RequestID == c.Message || t.ID == c.Answer && c.Answer != uuid.Nil {
			chain := state.Chain(t)
			newest := chain[len(chain)-1].ID
			return slices.IndexFunc(of, func(t *session.Turn) bool { return t.ID == newest })
		}
	}
	return -1
}

// asRecorded returns an input with what the log says in the place of messages that it has: of a question by its id,
// with all that answers it, and of an answer by its own.
func asRecorded(
	c *services.ChatTurn, input []message.Item, turns []align.Turn, of []*session.Turn,
) (out []message.Item) {
	last := len(input) - 1
	for n := 0; n < last; n++ {
		k, asks := known(c.IDs[n], input[n].Asks(), turns, of)
		if k < 0 || asks && n+1 < last && isAnotherTurn(c.IDs[n+1], of[k]) {
			out = append(out, input[n])
			continue
		}
		all := turns[k].Items
		if !asks {
			all = all[len(question(all)):]
		}
		out = append(out, all...)
		for n+1 < last && !input[n+1].Asks() {
			n++
		}
	}
	return append(out, input[last])
}

// known returns the turn that has a message of an id, or -1; asks: the message is its question. Of a turn that is gone
// the client's words stand for it.
func known(id string, asks bool, turns []align.Turn, of []*session.Turn) (k int, question bool) {
	for n, t := range of {
		if len(turns[n].Items) > 0 && (asks && t.RequestID == id || !asks && t.ID.String() == id) {
			return n, asks
		}
	}
	return -1, asks
}

// isAnotherTurn reports whether the id of an answer is that of another turn: the same question has been answered anew
// since, in another branch.
func isAnotherTurn(id string, t *session.Turn) bool {
	turn, err := uuid.Parse(id)
	return err == nil && turn != t.ID
}

// makes reports whether a turn makes a call.
func makes(t align.Turn, callID string) bool {
	return slices.ContainsFunc(t.Items, func(i message.Item) bool { return i.IsCall() && i.CallID() == callID })
}

// question returns what asks among the items of a turn.
func question(of []message.Item) (out []message.Item) {
	for n, i := range slices.Backward(of) {
		if i.Asks() {
			return of[:n+1]
		}
	}
	return nil
}

// stepOfTurn returns the step that opened a turn.
func (s *Service) stepOfTurn(ctx context.Context, r services.Reading, t *session.Turn) (*step, error) {
	sessionID, partition, _ := r.State.Origin(t, r.Position.Partition)
	at := events.Position{Partition: partition, Seq: t.Started}
	st, found, err := s.stepAt(ctx, at)
	if err != nil {
		return nil, err
	}
	if !found { // somebody else has recorded it
		st = step{session: sessionID, createdAt: t.CreatedAt, first: t.Started}
		st.Position, st.TurnID = at, t.ID
	}
	st.place, st.duplicate = t.Place, true
	return &st, nil
}
