package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// asked is what the log keeps of a request beside its input: the settings of the fact that brings the input.
type asked struct {
	// Request is never nil: it marks the settings of a request.
	Request      services.Settings `json:"request"`
	Conversation bool              `json:"conversation,omitempty"`
	Previous     string            `json:"previous_response_id,omitempty"`
	// History says what a chat completion was asked with.
	History services.History `json:"history,omitempty"`
}

// told is what the log keeps of an answer beside its items: the settings of the fact that brings it.
type told struct {
	// Model is the name that the response has from its first event on. AnsweredBy is what the endpoint calls the model
	// that answered, if it tells.
	Model      string          `json:"model"`
	AnsweredBy string          `json:"answered_by,omitempty"`
	Usage      session.Usage   `json:"usage"`
	Finish     services.Finish `json:"finish_reason,omitempty"`
	// Pieces are the lengths of the pieces in which the answer was told, without any text.
	Pieces string `json:"pieces,omitempty"`
	// Attempt names the attempt at the step that the answer ends; the others have failed.
	Attempt string `json:"attempt,omitempty"`
	askedWith
}

// askedWith is what the log keeps of the prompt of an answer.
type askedWith struct {
	Prompt *services.PromptSettings `json:"prompt,omitempty"`
}

// step is where a response stands in the log: the fact that brought its input.
type step struct {
	items.Step
	session   string
	createdAt time.Time
	// extension is the id under which the answer extends the turn, or "" if the answer finalizes it.
	extension string
	// place of the turn.
	place     uint64
	duplicate bool
	recorded  services.Recorded
	asked     asked
	// first is the sequence of the first event that the step's call appended.
	first uint64
}

// key names the step to all processes.
func (st step) key() uuid.UUID {
	if st.extension == "" {
		return st.TurnID
	}
	return uuid.NewSHA1(st.TurnID, []byte(st.extension))
}

// outputMessages is the first number of a message of an answer. The ids of such messages are made of the place of their
// request, since they are told before the answer has a place.
const outputMessages = 0x8000

// told returns the step as a listener is told of it.
func (s *Service) told(st step, model string) services.Step {
	out := services.Step{
		SessionID: st.session, TurnID: st.TurnID, ResponseID: items.ResponseID(st.Step), Previous: st.asked.Previous,
		CreatedAt: st.createdAt, Model: model, Stored: true, Settings: st.asked.Request,
		Asked: st.Position, Recorded: st.recorded,
		Mint: s.mint(st.session, st.Position),
	}
	switch {
	case st.duplicate:
		out.Recorded = services.RecordedAgain
	case st.recorded == "" && st.extension != "":
		out.Recorded = services.RecordedExtension
	case st.recorded == "":
		out.Recorded = services.RecordedTurn
	}
	if st.asked.Conversation {
		out.Conversation = st.session
	}
	return out
}

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
	before, _, _ := e.Append()
	st = step{session: e.SessionID, createdAt: e.Time, place: e.Position.Seq, first: e.Position.Seq - before}
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
	ctx context.Context, id string, who services.Caller, none error,
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
func (s *Service) stood(
	ctx context.Context, id string, who services.Caller, none error,
) (st step, stands bool, err error) {
	at, looks := items.ParseResponseID(id)
	if !looks {
		return st, false, none
	}
	st, stands, err = s.stepAt(ctx, at.Position)
	st.Attempt = at.Attempt
	if err == nil && !stands { // it may have left the log
		st.Step = at
		st.session, err = s.cfg.SessionOf(ctx, at.TurnID.String())
	}
	if err == nil && (st.session == "" || st.TurnID != at.TurnID) {
		err = none
	}
	if err == nil {
		err = may(ctx, who, st.session, none)
	}
	return st, stands, err
}

// may returns none if the caller may not know of a session. Where that can't be told, it returns why: an outage is no
// absence.
func may(ctx context.Context, who services.Caller, sessionID string, none error) error {
	err := who.May(ctx, sessionID)
	if errors.Is(err, services.ErrNoSession) {
		return none
	}
	return err
}

// SessionOf returns the session that a response stands in.
func (s *Service) SessionOf(ctx context.Context, id string, who services.Caller) (string, error) {
	st, _, err := s.find(ctx, id, who, services.ErrNoResponse)
	return st.session, err
}

// isGone reports whether an error says that there is no such turn, or not any more.
func isGone(err error) bool {
	return errors.Is(err, decide.ErrTurnNotFound) || errors.Is(err, decide.ErrSessionErased)
}

// shown reports whether there is a turn whose texts may be shown.
func shown(t *session.Turn) bool {
	return t != nil && (t.Status == session.Pending || t.Status == session.Finalized)
}

// answerAt returns the position of a step's answer, if its turn has it.
func (st step) answerAt(t *session.Turn) (events.Position, bool) {
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

// Response returns a response as the log has it.
func (s *Service) Response(ctx context.Context, id string, who services.Caller) (services.Answered, error) {
	st, found, err := s.find(ctx, id, who, services.ErrNoResponse)
	if err != nil {
		return services.Answered{}, err
	}
	out := services.Answered{Step: s.told(st, s.cfg.Model.Name())}
	if _, answered := st.answerAt(found.Turn); answered {
		if done, err := s.recorded(ctx, st, found.Turn); err != nil || done.ResponseID == out.ResponseID {
			return done, err
		}
	} else {
		out.Running, out.Queued = s.attempted(ctx, st)
	}
	if !out.Running { // or another attempt has answered
		out.Err = services.ErrModelFailed
	}
	return out, nil
}

// attempted reports whether a process works on an attempt at a step, or may be about to, and whether it waits for
// others.
func (s *Service) attempted(ctx context.Context, st step) (running, queued bool) {
	if r := s.live.find(st.session, ofResponse(items.ResponseID(st.Step))); r != nil {
		return true, r.isQueued()
	}
	present, about, err := s.cfg.Presence.Present(ctx, st.key())
	if err != nil || present && about.Attempt == st.Attempt {
		return true, about.Queued
	}
	since := time.Since(st.createdAt)
	if st.Attempt != "" {
		since = items.SinceAttempt(st.Attempt, time.Now())
	}
	failed, _ := s.known(st.key())
	other := present && about.Attempt != undecided
	return !failed && !other && since < settling, false
}

// recorded returns a response with its answer.
func (s *Service) recorded(ctx context.Context, st step, t *session.Turn) (out services.Answered, err error) {
	at, _ := st.answerAt(t)
	var a recordedAnswer
	if t.PrunedAt() > at.Seq {
		a, err = s.prunedAnswer(ctx, t, at)
	} else {
		a, err = s.recordedAnswer(ctx, at)
	}
	if err != nil {
		return out, err
	}
	said := told{Model: s.cfg.Model.Name()}
	_ = json.Unmarshal(a.settings, &said) // an answer of somebody else has none
	if t.PrunedAt() > at.Seq {
		said.Pieces = ""
	}
	st.Attempt = said.Attempt
	return services.Answered{
		Pieces: said.Pieces,
		Step:   s.told(st, said.Model), At: a.at, Usage: said.Usage, Finish: cmp.Or(said.Finish, services.FinishStop),
		Output: s.cfg.IDs.OfMessages(st.session, items.Address{Position: at, Answer: true}, a.messages),
	}, nil
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
		err = services.ErrNoResponse
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
