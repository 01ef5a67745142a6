package respond

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// stepAt returns the step at a position, or false if there is none.
func (s *Service) stepAt(ctx context.Context, at events.Position) (st step, found bool, err error) {
	if at.Partition >= s.cfg.Log.Partitions() || at.Seq == 0 {
		return step{}, false, nil
	}
	e, found, err := s.cfg.Log.At(ctx, at)
	if err != nil || !found {
		return step{}, false, err
	}
	st, found = stepOf(&e)
	return st, found, nil
}

// stepOf returns the step that an event brought, or false if it brought none.
func stepOf(e *events.Recorded) (st step, found bool) {
	if e.Fact == nil {
		return step{}, false
	}
	st = step{session: e.SessionID, createdAt: e.Time, place: e.Position.Seq}
	if before, _, known := e.Append(); known {
		st.first = e.Position.Seq - before
	}
	st.Position, st.TurnID = e.Position, events.NamesOf(e.Fact).TurnID
	settings, finalizes := settingsOf(e.Fact)
	if settings == nil || json.Unmarshal(settings, &st.asked) != nil {
		return step{}, false
	}
	if !finalizes {
		st.extension = extensionOf(st.TurnID, e.ID)
	}
	return st, st.asked.Request != nil
}

// settingsOf returns the settings of a fact, and whether the answer to it finalizes its turn.
func settingsOf(f events.Fact) (settings json.RawMessage, finalizes bool) {
	texts := events.TextsOf(f)
	asks := texts.Extension != nil && texts.Extension.Half == events.HalfQuestion
	return texts.Settings, texts.Question != nil || asks
}

// find returns the step of a response that the caller may reach, with the turn as it is now, without its texts;
// otherwise none.
func (s *Service) find(
	ctx context.Context, id string, who Caller, none error,
) (st step, found services.FoundTurn, err error) {
	st, stands, err := s.stood(ctx, id, who, none)
	if err != nil {
		return st, found, err
	}
	found, err = s.cfg.Lookup.FindTurn(ctx, st.session, st.TurnID)
	if isGone(err) || err == nil && !shown(found.Turn) {
		err = none
	}
	if err != nil {
		return st, found, err
	}
	if found.Turn.PrunedAt() > st.Position.Seq { // what the event says goes from the log
		st, stands, err = s.prunedStep(ctx, st, found.Turn)
	}
	if err == nil && !stands {
		err = none
	}
	st.place = found.Turn.Place
	return st, found, err
}

// stood returns the step of a response in the reach of the caller, or none; stands: its event is in the log. The
// response may be gone.
func (s *Service) stood(ctx context.Context, id string, who Caller, none error) (st step, stands bool, err error) {
	at, looks := items.ParseResponseID(id)
	if !looks {
		return st, false, none
	}
	st, stands, err = s.stepAt(ctx, at.Position)
	if err == nil && !stands { // it may have left the log
		st.Step = at
		st.session, err = s.cfg.SessionOf(ctx, at.TurnID)
	}
	if err == nil && (st.session == "" || st.TurnID != at.TurnID) {
		err = none
	}
	if err == nil {
		err = who.may(ctx, st.session, none)
	}
	return st, stands, err
}

// StoodIn returns the session that a response stands in, or stood in before it was deleted.
func (s *Service) StoodIn(ctx context.Context, id string, who Caller) (string, error) {
	st, _, err := s.stood(ctx, id, who, ErrResponseNotFound)
	return st.session, err
}

// may returns none if the caller may not know of a session. Where that can't be told, it returns why: an outage is no
// absence.
func (c Caller) may(ctx context.Context, sessionID string, none error) error {
	err := c.May(ctx, sessionID)
	if errors.Is(err, services.ErrNoSession) {
		return none
	}
	return err
}

// previous finds the response that a request goes on with. What stands before the last reset of its session is history
// for nobody any more.
func (s *Service) previous(ctx context.Context, a Ask) (st step, found services.FoundTurn, err error) {
	st, found, err = s.find(ctx, a.Previous, a.Caller, ErrPrevious)
	if err == nil && found.Turn.Place <= found.Head.Boundary {
		err = ErrPrevious
	}
	return st, found, err
}

// isGone reports whether an error says that there is no such turn, or not any more.
func isGone(err error) bool {
	return errors.Is(err, conversation.ErrTurnNotFound) || errors.Is(err, conversation.ErrSessionErased)
}

// shown reports whether there is a turn whose texts may be shown.
func shown(t *conversation.Turn) bool {
	return t != nil && (t.Status == conversation.Pending || t.Status == conversation.Finalized)
}

// answerAt returns the position of a step's answer, if its turn has it.
func (st step) answerAt(t *conversation.Turn) (events.Position, bool) {
	at := events.Position{Partition: st.Position.Partition, Seq: t.Final}
	if st.extension != "" {
		at.Seq = 0
		for _, x := range t.Extensions() {
			if x.ID == st.extension {
				at.Seq = x.Seq
			}
		}
	}
	return at, at.Seq != 0
}

// response returns a response as the log has it.
func (s *Service) response(
	ctx context.Context, st step, t *conversation.Turn, with message.Includes,
) (Response, error) {
	at, answered := st.answerAt(t)
	if !answered {
		if !s.cfg.Answers.Working(ctx, st.key(), st.createdAt) {
			return st.outline(s.cfg.Model.Name()).failed(services.ErrModelFailed), nil
		}
		return st.outline(s.cfg.Model.Name()).running(), nil
	}
	var a recordedAnswer
	var err error
	if t.PrunedAt() > at.Seq {
		a, err = s.prunedAnswer(ctx, t, at)
	} else {
		a, err = s.recordedAnswer(ctx, at)
	}
	if err != nil {
		return nil, err
	}
	out := ended{at: a.at}
	said := told{Model: s.cfg.Model.Name()}
	_ = json.Unmarshal(a.settings, &said) // an answer of somebody else has none
	out.usage, out.finish = said.Usage, cmp.Or(said.Finish, services.FinishStop)
	out.output = s.cfg.IDs.OfMessages(st.session, items.Address{Position: at, Answer: true}, a.messages)
	for i, one := range out.output {
		out.output[i] = one.Shown(with)
	}
	return st.outline(said.Model).answered(out), nil
}

// recordedAnswer is an answer as the log has it.
type recordedAnswer struct {
	at       time.Time
	messages []json.RawMessage
	settings json.RawMessage
}

// recordedAnswer returns the answer that an event brought.
func (s *Service) recordedAnswer(ctx context.Context, at events.Position) (a recordedAnswer, err error) {
	e, found, err := s.cfg.Log.At(ctx, at)
	if err == nil && !found {
		err = ErrResponseNotFound
	}
	if err != nil {
		return a, err
	}
	var messages json.RawMessage
	switch texts := events.TextsOf(e.Fact); {
	case texts.Answer != nil:
		messages = texts.Answer.AnswerMessages
	case texts.Extension != nil:
		messages = texts.Extension.Messages
	}
	_ = json.Unmarshal(messages, &a.messages) // the log checked them
	a.at = e.Time
	a.settings, _ = settingsOf(e.Fact)
	return a, nil
}
