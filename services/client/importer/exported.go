package importer

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/turnledger/turnledger/services/client"
)

// exportedTurn is a row of an export (docs/analysts.md#tables), or a turn as the API shows it.
type exportedTurn struct {
	client.Turn

	ForkedFromSessionID string                     `json:"forked_from_session_id"`
	ForkedFromTurnID    string                     `json:"forked_from_turn_id"`
	Metadata            map[string]json.RawMessage `json:"metadata"`

	err error
}

// parseExported reads a turn of an export. It reports false for what is none.
func parseExported(text []byte) (t exportedTurn, is bool) {
	var head struct {
		TurnID      *json.RawMessage `json:"turn_id"`
		RequestID   *json.RawMessage `json:"request_id"`
		SpecVersion *json.RawMessage `json:"specversion"`
		Messages    *json.RawMessage `json:"messages"`
	}
	if json.Unmarshal(text, &head) != nil || head.Messages != nil {
		return t, false
	}
	if head.SpecVersion != nil {
		t.err = errEvents
		return t, true
	}
	if head.TurnID == nil || head.RequestID == nil {
		return t, false
	}
	if json.Unmarshal(text, &t) != nil || t.SessionID == "" || t.TurnID == "" || t.RequestID == "" {
		t.err = errors.New("not a turn as replay --turns and export print it")
	}
	return t, true
}

var errEvents = errors.New("an event of the log, which is not imported: make the file with replay --turns")

// The statuses of a turn that an import treats in ways of their own.
const (
	statusPending  = "pending"
	statusRedacted = "redacted"
)

// exported gathers the turns of an export, which come session by session.
type exported struct {
	*importer

	send  func(line) error
	line  line
	turns []exportedTurn
	// stands has, for a turn that is replaced or redacted, the one that a branch of it shares last; "" for none.
	stands map[string]string
}

// add takes the next turn, which stands at l.
func (x *exported) add(ctx context.Context, l line, t exportedTurn) error {
	if t.err != nil || len(x.turns) > 0 && x.turns[0].SessionID != t.SessionID {
		if err := x.flush(ctx); err != nil {
			return err
		}
	}
	if t.err != nil {
		l.err = t.err
		return x.send(l)
	}
	if !t.CreatedAt.IsZero() {
		x.drop([]string{"created_at"})
	}
	if len(x.turns) == 0 {
		x.line = line{where: l.where, session: t.SessionID}
	}
	x.line.size += l.size
	x.turns = append(x.turns, t)
	return nil
}

// flush sends the turns of a session. What another call for the session, or for one that it shares turns of, has under
// way is recorded first.
func (x *exported) flush(ctx context.Context) error {
	if len(x.turns) == 0 {
		return nil
	}
	l := x.line
	l.recorded = make(chan struct{})
	fork := x.fork()
	if fork != nil {
		l.open = forking(*fork)
		if err := x.settled(ctx, fork.SessionID); err != nil {
			return err
		}
	}
	x.fill(&l, fork)
	x.turns = nil
	if err := x.settled(ctx, l.session); err != nil {
		return err
	}
	x.mu.Lock()
	x.underway[l.session] = l.recorded
	x.mu.Unlock()
	return x.send(l)
}

// fill makes turns and corrections of the rows. Redacted ones stay out.
func (x *exported) fill(l *line, fork *client.Fork) {
	before := map[string]exportedTurn{} // by the turn that replaces it
	last := ""
	if fork != nil {
		last = fork.TurnID
	}
	for _, t := range x.turns {
		former, corrects := before[t.TurnID]
		switch {
		case t.Status == statusRedacted:
			x.count(func(s *Summary) { s.Redacted++ })
			x.stands[t.TurnID] = last
			continue
		case corrects:
			l.corrections = append(l.corrections, correction(former, t))
		default:
			l.turns = append(l.turns, t.whole())
		}
		if last = t.TurnID; t.ReplacedByTurnID != "" {
			before[t.ReplacedByTurnID], x.stands[t.TurnID] = t, t.ReplacedByTurnID
		}
	}
}

// fork returns the fork that the session of the rows begins with, or nil.
func (x *exported) fork() *client.Fork {
	f := client.Fork{
		SessionID: x.turns[0].ForkedFromSessionID, TurnID: x.turns[0].ForkedFromTurnID,
		Branch: x.line.session, RequestID: "import-" + x.line.session,
	}
	for is := true; is; {
		var other string
		if other, is = x.stands[f.TurnID]; is {
			f.TurnID = other
		}
	}
	if f.TurnID == "" {
		return nil
	}
	return &f
}

// forking returns a call that forks a session, unless the branch is there.
func forking(f client.Fork) func(context.Context, Store) error {
	return func(ctx context.Context, to Store) error {
		_, err := to.Fork(ctx, f)
		if errors.Is(err, &client.Error{Code: "session_exists"}) {
			return nil
		}
		return err
	}
}

// whole returns the turn as it is recorded.
func (t exportedTurn) whole() client.WholeTurn {
	w := client.WholeTurn{Start: client.Start{
		SessionID: t.SessionID, RequestID: t.RequestID, IdentityID: t.IdentityID,
		QuestionNeutral: t.QuestionNeutral, QuestionTranslated: t.QuestionTranslated, TranslateChat: t.TranslateChat,
		PipelineName: t.PipelineName, Consultant: t.Consultant, Repository: t.Repository,
		QuestionMessages: t.QuestionMessages,
	}}
	if len(t.Metadata) > 0 {
		w.Metadata = make(map[string]any, len(t.Metadata))
		for k, v := range t.Metadata {
			w.Metadata[k] = v
		}
	}
	if t.Status != statusPending {
		w.QuestionMessages = unlessEmpty(t.QuestionNeutral, t.QuestionTranslated, t.QuestionMessages, "user")
		w.Answer = &client.Answer{
			AnswerNeutral: t.AnswerNeutral, AnswerTranslated: t.AnswerTranslated,
			AnswerTranslatedIsFallback: t.AnswerTranslatedIsFallback,
			AnswerMessages:             unlessEmpty(t.AnswerNeutral, t.AnswerTranslated, t.AnswerMessages, "assistant"),
		}
	}
	return w
}

// unlessEmpty returns the messages of a half. A half whose items were all deleted becomes a message that says nothing,
// since no turn is recorded without it.
func unlessEmpty(neutral, translated string, messages []json.RawMessage, role string) []json.RawMessage {
	if neutral+translated != "" || len(messages) > 0 {
		return messages
	}
	return []json.RawMessage{json.RawMessage(`{"role":"` + role + `","content":""}`)}
}

// correction returns what makes a turn of the one that it replaces.
func correction(old, t exportedTurn) client.Correct {
	changed := func(was, is string) *string {
		if was == is {
			return nil
		}
		return &is
	}
	return client.Correct{
		SessionID: t.SessionID, TurnID: old.TurnID, RequestID: t.RequestID,
		QuestionNeutral:    changed(old.QuestionNeutral, t.QuestionNeutral),
		QuestionTranslated: changed(old.QuestionTranslated, t.QuestionTranslated),
		AnswerNeutral:      changed(old.AnswerNeutral, t.AnswerNeutral),
		AnswerTranslated:   changed(old.AnswerTranslated, t.AnswerTranslated),
	}
}

// settled waits until what is under way for a session is recorded.
func (im *importer) settled(ctx context.Context, session string) error {
	im.mu.Lock()
	done := im.underway[session]
	im.mu.Unlock()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle marks a line as recorded, as far as it could be.
func (im *importer) settle(l *line) {
	if l.recorded == nil {
		return
	}
	im.mu.Lock()
	if im.underway[l.session] == l.recorded {
		delete(im.underway, l.session)
	}
	im.mu.Unlock()
	close(l.recorded)
}
