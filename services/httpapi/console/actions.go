package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Fields of the form of a correction, and of that of a title.
const (
	questionField = "question"
	answerField   = "answer"
	titleField    = "title"
	requestField  = "request_id"
	mostTurnText  = 1 << 20
)

// Paths of actions on a session and on a turn.
const (
	onSession = "/sessions/{session_id}"
	onTurn    = onSession + "/turns/{turn_id}"
)

// actions adds what the caller can do to sessions and turns, as far as this process writes.
func (s *surface) actions() {
	if s.cfg.Turns != nil {
		s.act(s.redact())
		s.act(s.correct())
	}
	if s.cfg.SessionWrites != nil {
		s.act(s.describe())
		s.act(s.reset())
		s.act(s.fork())
	}
	if s.cfg.Erasures != nil {
		s.act(s.eraseSession())
		s.act(s.eraseIdentity())
	}
}

func (s *surface) redact() action {
	return action{
		path: onTurn + "/redact", needs: access.TurnsRedact, admit: s.own, title: "Redact a turn",
		words: []string{
			"The turn becomes a tombstone: its question, its answer and its metadata go, with all its corrections. " +
				"Its ids, its times and its place stay.",
			"From the next request on no prompt, page or search shows the texts. Then they are erased from the " +
				"log, from the views, and from summaries that cover the turn. Branches that share the turn lose " +
				"it, too.",
			"The next page is the receipt. It shows which places have carried it out.",
		},
		sure: true, button: "Redact this turn", fields: []field{reasonField()}, about: s.turnTexts,
		do: func(ctx context.Context, r *http.Request, form url.Values) (string, error) {
			id, err := turnOf(r)
			if err != nil {
				return "", err
			}
			t, err := s.cfg.Turns.RedactTurn(ctx, r.PathValue("session_id"), decide.Redact{
				TurnID: id, Reason: form.Get("reason"), RedactedBy: callerName(ctx),
			})
			return receiptHref(t.Position.String()), err
		},
	}
}

func (s *surface) correct() action {
	return action{
		path: onTurn + "/correct", needs: access.TurnsWrite, admit: s.own, title: "Correct a turn",
		words: []string{
			"A new version takes the turn's place. Prompts show the new version from the next request on.",
			"The old version stays in the log, and the session's page shows it struck through. To take a text away " +
				"for good, redact the turn.",
			"A text that you leave as it is, or empty, stays. A corrected text also takes the place of the " +
				"messages with which that half of the turn was recorded.",
		},
		button: "Record the correction", about: s.turnTexts,
		fields: []field{
			{Name: questionField, Label: "Question", Area: true, Most: mostTurnText},
			{Name: answerField, Label: "Answer", Area: true, Most: mostTurnText},
		},
		do: func(ctx context.Context, r *http.Request, form url.Values) (string, error) {
			id, err := turnOf(r)
			if err != nil {
				return "", err
			}
			session := r.PathValue("session_id")
			c := decide.Correct{
				SessionID: session, RequestID: form.Get(requestField), TurnID: id,
				QuestionNeutral: textField(form, questionField), AnswerNeutral: textField(form, answerField),
			}
			if err := s.leaveUnchanged(ctx, &c); err != nil {
				return "", err
			}
			t, err := s.cfg.Turns.CorrectTurn(ctx, c)
			return sessionHref(session) + "?at=" + t.Position.String() + "#t-" + t.ID.String(), err
		},
	}
}

// leaveUnchanged takes the texts out of a correction that are as the turn has them.
func (s *surface) leaveUnchanged(ctx context.Context, c *decide.Correct) error {
	reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: c.SessionID, AllTurns: true})
	if err != nil {
		return err
	}
	t := reading.State.Turn(c.TurnID)
	if t == nil {
		return nil // the command says what is wrong
	}
	if q := c.QuestionNeutral; q != nil && t.Question != nil && *q == t.Question.QuestionNeutral {
		c.QuestionNeutral = nil
	}
	if a := c.AnswerNeutral; a != nil && t.Answer != nil && *a == t.Answer.AnswerNeutral {
		c.AnswerNeutral = nil
	}
	return nil
}

// textField returns what a field holds, nil if it is empty. Browsers send lines that end with CR LF.
func textField(form url.Values, name string) *string {
	text := strings.ReplaceAll(form.Get(name), "\r\n", "\n")
	if text == "" {
		return nil
	}
	return &text
}

func (s *surface) describe() action {
	return action{
		path: onSession + "/describe", needs: access.TurnsWrite, admit: s.own, title: "Describe a session",
		words: []string{
			"The session gets this title; an empty one takes its title away. The former title is erased from the log.",
			"A key of the metadata with a value is set, and a key without a value is taken away. Leave the key " +
				"empty to leave the metadata as it is.",
		},
		button: "Save",
		fields: []field{
			{Name: titleField, Label: "Title", Most: 200}, {Name: "key", Label: "Key of the metadata", Most: 64},
			{Name: "value", Label: "Its value", Most: 512},
		},
		about: s.presentTitle,
		do: func(ctx context.Context, r *http.Request, form url.Values) (string, error) {
			title, session := form.Get(titleField), r.PathValue("session_id")
			c := decide.Describe{SessionID: session, RequestID: form.Get(requestField), Title: &title}
			if key := form.Get("key"); key != "" {
				c.Metadata = map[string]*string{key: nil}
				if value := form.Get("value"); value != "" {
					c.Metadata[key] = &value
				}
			}
			_, err := s.cfg.SessionWrites.DescribeSession(ctx, c)
			return sessionHref(session), err
		},
	}
}

// presentTitle puts the title that stands into the form, for callers who may read it.
func (s *surface) presentTitle(ctx context.Context, r *http.Request, out *actView) error {
	if !s.allows(ctx, access.ContextRead) {
		return nil
	}
	reading, err := s.cfg.Sessions.Read(ctx, services.Ask{SessionID: r.PathValue("session_id"), Own: true})
	if err == nil {
		out.Fields[0].Value = reading.State.Head().Description().Title
	}
	return err
}

func (s *surface) reset() action {
	return action{
		path: onSession + "/reset", needs: access.TurnsWrite, admit: s.own, title: "Reset a session",
		words: []string{
			"Prompts and history begin anew: the next prompt shows no turn from before the reset. Summaries end.",
			"Nothing is deleted. The turns stay in the log and on the session's page.",
		},
		button: "Reset the session", fields: []field{reasonField()},
		do: func(ctx context.Context, r *http.Request, form url.Values) (string, error) {
			session := r.PathValue("session_id")
			_, err := s.cfg.SessionWrites.ResetSession(ctx, session, form.Get("reason"))
			return sessionHref(session), err
		},
	}
}

func (s *surface) fork() action {
	return action{
		path: onTurn + "/fork", needs: access.TurnsWrite | access.ContextRead, admit: s.own,
		title: "Begin a branch",
		words: []string{
			"A new session begins with the turns up to and with this one, which it shares. This session stays " +
				"as it is.",
			"What is redacted or erased here later goes from the branch, too.",
		},
		button: "Begin a branch after this turn", about: s.turnTexts,
		do: func(ctx context.Context, r *http.Request, form url.Values) (string, error) {
			id, err := turnOf(r)
			if err != nil {
				return "", err
			}
			made, err := s.cfg.SessionWrites.ForkSession(ctx, decide.ForkSession{
				SessionID: r.PathValue("session_id"), RequestID: form.Get(requestField), TurnID: id,
			})
			return sessionHref(made.SessionID), err
		},
	}
}

// erasing says what an erasure does beside what it is about.
const erasing = "From the next request on nothing shows the texts. Then they are erased from the log and from the " +
	"views; branches lose the turns that they share. The next page is the receipt. It shows which places have " +
	"carried it out."

func (s *surface) eraseSession() action {
	return action{
		path: onSession + "/erase", needs: access.TurnsRedact, admit: s.own, title: "Erase a session",
		words: []string{
			"The session is closed for ever, and all its texts go. Later writes to it are refused.", erasing,
		},
		button: "Erase this session", sure: true, fields: []field{reasonField()},
		do: func(ctx context.Context, r *http.Request, form url.Values) (string, error) {
			receipt, err := s.cfg.Erasures.EraseSession(ctx, r.PathValue("session_id"), services.Erasure{
				Reason: form.Get("reason"), By: callerName(ctx),
			})
			return receiptHref(receipt), err
		},
	}
}

func (s *surface) eraseIdentity() action {
	return action{
		path: "/identities/{identity_id}/erase", needs: access.TurnsRedact, admit: s.ownIdentity,
		title: "Erase an identity",
		words: []string{
			"All sessions of the identity are closed for ever, also those that are linked to it later, and all " +
				"their texts go.", erasing,
			"Sessions of the same person that are anonymous, or linked to another identity, are not found by this.",
		},
		button: "Erase this identity", sure: true, fields: []field{reasonField()}, about: s.aboutIdentity,
		do: func(ctx context.Context, r *http.Request, form url.Values) (string, error) {
			receipt, err := s.cfg.Erasures.EraseIdentity(ctx, r.PathValue("identity_id"), services.Erasure{
				Reason: form.Get("reason"), By: callerName(ctx),
			})
			return receiptHref(receipt), err
		},
	}
}

// ownIdentity lets bound callers in if the identity in the path is theirs.
func (s *surface) ownIdentity(r *http.Request) error {
	if own := wire.CallOf(r.Context()).Caller.IdentityID; own != "" && own != r.PathValue("identity_id") {
		return errNothing
	}
	return s.anybody(r)
}

// sessionActions returns what the caller may do to a session, as links of its page, and apart from that what can't be
// undone.
func (s *surface) sessionActions(ctx context.Context, id, identity string) (list, forGood []link) {
	at := sessionHref(id)
	if s.cfg.Explain != nil && s.allows(ctx, access.EventsRead) {
		list = append(list, link{"What a prompt sees", at + "/explain"})
	}
	if s.cfg.WhatIfs != nil && s.allows(ctx, access.ContextRead) {
		list = append(list, link{"What if", at + "/whatif"})
	}
	if s.cfg.SessionWrites != nil && s.allows(ctx, access.TurnsWrite) {
		list = append(list, link{"Title and metadata", at + "/describe"}, link{"Reset", at + "/reset"})
	}
	if s.cfg.Events != nil && s.allows(ctx, access.EventsRead) {
		list = append(list, link{"Export its events", at + "/export"})
	}
	if s.cfg.Erasures != nil && s.allows(ctx, access.TurnsRedact) {
		forGood = append(forGood, link{"Erase this session", at + "/erase"})
		if identity != "" {
			forGood = append(forGood, link{"Erase its identity with all sessions", identityHref(identity) + "/erase"})
		}
	}
	return list, forGood
}

// turnActions returns what the caller may do to a turn that stands in a session.
func (s *surface) turnActions(ctx context.Context, sessionID string, t *session.Turn) (list []link) {
	at := sessionHref(sessionID) + "/turns/" + t.ID.String()
	if t.Status == session.Redacted {
		return nil
	}
	final := t.Status == session.Finalized
	if s.cfg.Turns != nil && final && s.allows(ctx, access.TurnsWrite) {
		list = append(list, link{"correct", at + "/correct"})
	}
	if s.cfg.SessionWrites != nil && final && s.allows(ctx, access.TurnsWrite) {
		list = append(list, link{"branch", at + "/fork"})
	}
	if s.cfg.Turns != nil && t.Status != session.Replaced && s.allows(ctx, access.TurnsRedact) {
		list = append(list, link{"redact", at + "/redact"})
	}
	return list
}

// identityHref returns the address below which the actions on an identity are.
func identityHref(id string) string { return root + "/identities/" + url.PathEscape(id) }
