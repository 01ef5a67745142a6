package read

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// Folds are the sessions that a process which writes holds folded, without texts. Its service that writes is one.
type Folds interface {
	// Look calls use with a session as the log has it now, perhaps again with a newer one, and returns the position
	// that it is as new as. use must neither change nor keep the session.
	Look(ctx context.Context, sessionID string, use func(*session.State)) (events.Position, error)
	// OnWithdrawal has f called after an event withdrew texts of a session, once the session is folded. It is called
	// before the service runs.
	OnWithdrawal(f func(sessionID string))
}

var _ services.TurnLookup = (*Reader)(nil)

// look calls use with a session as new as the log, without the turns that it shares as a branch, and perhaps without
// texts; perhaps again with a newer one. use must neither change nor keep it. It returns the session's head, with the
// identity of a branch's root, and the position that it is as new as.
func (r *Reader) look(
	ctx context.Context, sessionID string, use func(*session.State),
) (head session.Head, at events.Position, err error) {
	if err := decide.ValidIDs("session_id", sessionID); err != nil {
		return head, at, err
	}
	state := session.New(sessionID, r.cfg.Rules)
	at, err = r.folded(ctx, sessionID, func(s *session.State) {
		state.Adopt(s.Head())
		state.Applied = s.Applied
		use(s)
	})
	if root := state.Fork().Root; err == nil && root != "" && state.Identity == "" {
		_, err = r.folded(ctx, root, func(s *session.State) { state.Identity = s.Identity })
	}
	if err == nil {
		err = r.erasures.Session(ctx, state, at)
	}
	if err == nil && state.Erased != 0 {
		err = decide.ErrSessionErased
	}
	return state.Head(), at, err
}

// folded calls use with a session that is folded whole.
func (r *Reader) folded(
	ctx context.Context, sessionID string, use func(*session.State),
) (events.Position, error) {
	if r.cfg.Folds != nil {
		return r.cfg.Folds.Look(ctx, sessionID, use)
	}
	o, at, err := r.origin(ctx, sessionID, func() (events.Position, error) {
		return r.log.Head(ctx, r.log.Partition(sessionID))
	})
	if err == nil {
		use(o)
	}
	return at, err
}

// FindTurn implements services.TurnLookup.
func (r *Reader) FindTurn(
	ctx context.Context, sessionID string, turn uuid.UUID,
) (found services.FoundTurn, err error) {
	found.Head, _, err = r.look(ctx, sessionID, func(s *session.State) {
		found.Turn = nil
		if t := s.Turn(turn); t != nil {
			own := *t
			found.Turn = &own
		}
	})
	if err == nil && found.Turn == nil {
		err = decide.ErrTurnNotFound
	}
	return found, err
}

// TurnsBeside implements services.TurnLookup. The newest turns are mostly in the view. Others are chosen in a session
// that is folded without texts, and the texts of these turns alone are read. A branch is read whole. So is a session of
// which texts have just left the log, or of which so much is asked for that its events are read faster in their order.
func (r *Reader) TurnsBeside(ctx context.Context, ask services.BesideAsk) (services.TurnsBeside, bool, error) {
	for _, way := range []func(context.Context, services.BesideAsk) (around, bool, error){
		r.newestOf, r.placed, r.wholeOf,
	} {
		a, there, err := way(ctx, ask)
		if err != nil {
			return services.TurnsBeside{}, false, err
		}
		if !there {
			continue
		}
		out := services.TurnsBeside{More: a.more, Position: a.position}
		for _, p := range a.chosen {
			out.Turns = append(out.Turns, p.StandingTurn)
		}
		return out, a.found, nil
	}
	return services.TurnsBeside{}, false, nil
}

const (
	// mostPlaced is how many messages are read by the places of their events at most.
	mostPlaced = 500
	// longTurn is how many bytes of messages a turn has at most that is not read in parts.
	longTurn = 128 << 10
)

// newestOf chooses turns of a session that ends with them. there is false if others hold what is asked for.
func (r *Reader) newestOf(ctx context.Context, ask services.BesideAsk) (a around, there bool, err error) {
	if ask.At.Seq != 0 || ask.Messages > mostPlaced {
		return a, false, nil
	}
	// Each turn has a message.
	of := services.Ask{SessionID: ask.SessionID, Shown: ask.Messages, Pending: true}
	a, whole, err := r.chosenOf(ctx, ask, of, notViewed)
	if errors.Is(err, errNotViewed) {
		return a, false, nil
	}
	long := slices.ContainsFunc(a.chosen, func(p piece) bool {
		q, said := p.Question, p.Answer
		return q != nil && len(q.QuestionMessages) > longTurn || said != nil && len(said.AnswerMessages) > longTurn
	})
	return a, !long && (whole || ask.Back && a.more), err
}

var errNotViewed = errors.New("the view does not hold the session")

func notViewed(context.Context, services.Ask, events.Position) (services.Reading, error) {
	return services.Reading{}, errNotViewed
}

// wholeOf chooses turns of a session that is read whole.
func (r *Reader) wholeOf(ctx context.Context, ask services.BesideAsk) (a around, there bool, err error) {
	a, _, err = r.chosenOf(ctx, ask, services.Ask{SessionID: ask.SessionID, AllTurns: true}, r.fromArchive)
	return a, true, err
}

// chosenOf chooses turns of a reading, and reports whether that has all that are listed.
func (r *Reader) chosenOf(
	ctx context.Context, ask services.BesideAsk, of services.Ask, lost elsewhere,
) (around, bool, error) {
	a := around{BesideAsk: ask}
	reading, err := r.complete(ctx, of, lost)
	switch {
	case err != nil:
		return a, false, err
	case reading.State.Erased != 0:
		return a, false, decide.ErrSessionErased
	}
	a.position = reading.Position
	a.choose(reading.State, reading.Position.Partition, false)
	return a, reading.State.Whole, nil
}

// placed chooses turns of a session that is no branch. there is false if only the whole session tells them.
func (r *Reader) placed(ctx context.Context, ask services.BesideAsk) (a around, there bool, err error) {
	if ask.Messages > mostPlaced {
		return a, false, nil
	}
	bare := r.cfg.Folds != nil
	var kept *texts
	if bare { // before the session: what is withdrawn later goes from these texts, or nobody else gets them
		kept = r.texts.of(ask.SessionID, &texts{})
	}
	_, at, err := r.look(ctx, ask.SessionID, func(s *session.State) {
		a = around{BesideAsk: ask}
		if there = s.Fork().Root == ""; there {
			a.choose(s, r.log.Partition(ask.SessionID), bare)
		}
	})
	if a.position = at; err == nil && bare && there {
		there, err = r.fill(ctx, a, kept)
	}
	return a, there, err
}

// around chooses turns that stand side by side.
type around struct {
	services.BesideAsk

	// chosen are the turns that were asked for, oldest first, and messages counts theirs beside the one at At.
	chosen   []piece
	messages int
	// position is that of the session.
	position events.Position
	// found: there is a turn at At. more: there are further turns.
	found, more bool
}

// piece is a turn, or a part of one that was extended: its question, and some of what events brought to its answer. It
// may hold more, if one event brought both.
type piece struct {
	services.StandingTurn

	whole, question bool
	parts           []session.AnswerPart
}

// choose chooses turns of a session of a partition. bare: the session has no texts, so that parts of turns can be
// chosen.
func (a *around) choose(s *session.State, partition int, bare bool) {
	begin := s.ResetAt // a silence hides nothing here
	if s.Fork().Root != "" {
		begin = s.Boundary // of all that the branch shares
	}
	lists := func(t *session.Turn) bool {
		return t.Place > begin && (t.Status == session.Pending || t.Status == session.Finalized)
	}
	i, step := 0, 1
	if a.Back {
		i, step = len(s.Turns)-1, -1
	}
	var from *session.Turn
	if a.At.Seq != 0 {
		if i = s.BroughtBy(a.At, partition); i < 0 || !lists(s.Turns[i]) {
			return
		}
		from = s.Turns[i]
	}
	for a.found = s.Found(); i >= 0 && i < len(s.Turns) && !a.more; i += step {
		t := s.Turns[i]
		if !lists(t) {
			continue
		}
		if a.more = t != from && a.messages >= a.Messages; a.more {
			break
		}
		p := a.pieceOf(t, t == from, bare)
		own := *t
		p.Turn = &own
		p.SessionID, p.Partition, _ = s.Origin(t, partition)
		a.chosen = append(a.chosen, p)
	}
	if a.Back {
		slices.Reverse(a.chosen)
	}
}

// pieceOf chooses what is asked for of a turn. at: it is the one at At.
func (a *around) pieceOf(t *session.Turn, at, bare bool) (p piece) {
	parts := t.AnswerParts()
	if !bare || a.Messages == 0 || len(parts) < 2 {
		if !at {
			a.messages += t.LeastMessages()
		}
		return piece{whole: true}
	}
	const question = -1
	i, step, end := question, 1, len(parts)
	if a.Back {
		i, step, end = len(parts)-1, -1, question-1
	}
	if at {
		i = a.partAt(t, parts)
	}
	for n := 0; i != end && (a.messages < a.Messages || at && n == 0); i, n = i+step, n+1 {
		count := 1
		if i == question {
			p.question = true
		} else {
			p.parts, count = append(p.parts, parts[i]), parts[i].Messages
		}
		if !at || n > 0 {
			a.messages += count
		}
	}
	a.more = i != end
	if a.Back {
		slices.Reverse(p.parts)
	}
	if len(p.parts) > 0 {
		p.Skipped = p.parts[0].From
	}
	return p
}

// partAt returns which part of the answer holds the message at At, or -1 for the question.
func (a *around) partAt(t *session.Turn, parts []session.AnswerPart) int {
	if !a.Answer {
		return -1
	}
	has := func(p session.AnswerPart) bool { return p.From <= a.Message && a.Message < p.From+p.Messages }
	if a.At.Seq != t.Begun(events.HalfAnswer) {
		// The id was made with the place of a request, before there was its answer, or before the turn was pruned.
		has = func(p session.AnswerPart) bool { return p.Seq > a.At.Seq }
	}
	return max(0, slices.IndexFunc(parts, has))
}

// sources returns the sequences of the events that brought the texts of the piece, in order.
func (p piece) sources() (seqs []uint64) {
	if p.whole {
		return p.Sources()
	}
	answers := map[uint64]bool{}
	for _, a := range p.AnswerParts() {
		answers[a.Seq] = true
	}
	for _, seq := range p.Sources() {
		chosen := func(a session.AnswerPart) bool { return a.Seq == seq }
		asks := !answers[seq] || seq == p.Begun(events.HalfQuestion)
		if p.question && asks || slices.ContainsFunc(p.parts, chosen) {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// fill adds the texts of the chosen turns. It reports whether it found all: an erasure may have come first.
func (r *Reader) fill(ctx context.Context, a around, kept *texts) (bool, error) {
	var seqs []uint64
	for _, p := range a.chosen {
		seqs = append(seqs, p.sources()...)
	}
	slices.Sort(seqs)
	have, err := r.facts(ctx, a.SessionID, kept, slices.Compact(seqs))
	if err != nil {
		return false, err
	}
	for _, p := range a.chosen {
		var brought []events.Fact
		for _, seq := range p.sources() {
			f, has := have[seq]
			if !has {
				return false, nil
			}
			brought = append(brought, f)
		}
		p.Question, p.Answer, p.AnswerMetadata = nil, nil, nil
		if p.Skipped > 0 {
			p.Answer = &events.Answer{}
		}
		r.cfg.Rules.Fill(p.Turn, brought...)
	}
	return true, nil
}
