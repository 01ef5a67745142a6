package console

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Names of the fields of a message. What edits a turn or asks its question again is answered in a branch.
const (
	threadField      = "thread_id"
	contentField     = "content"
	editsField       = "edits_turn_id"
	regeneratesField = "regenerates_turn_id"
)

// playgroundView is the page on which people send messages.
type playgroundView struct {
	// Session is nil until the thread has a turn.
	Session         *sessionView
	Thread, Content string
	Edits, Request  string
	Identity        string
	Erased          bool // the thread is an erased session, which takes no message
	// Prompt is what the model would be sent; nil if nobody has asked.
	Prompt *explainView
}

// playground shows the form of a message, beside the conversation and its events.
func (s *surface) playground(ctx context.Context, r *http.Request) (view, error) {
	query := r.URL.Query()
	out := playgroundView{Thread: query.Get(threadField), Edits: query.Get("edit")}
	err := s.playgroundPage(ctx, r, &out)
	return view{"playground", "Playground", out}, err
}

// playgroundPage fills in the conversation.
func (s *surface) playgroundPage(ctx context.Context, r *http.Request, out *playgroundView) error {
	out.Request = "console-" + strings.ToLower(rand.Text())
	if out.Thread == "" {
		return nil
	}
	shown, err := s.conversation(ctx, r, out.Thread)
	if _, ok := errors.AsType[*erasedError](err); ok {
		out.Erased = true
		return nil
	}
	if errors.Is(err, services.ErrNoSession) || errors.Is(err, errNothing) {
		return nil // the first message makes it
	}
	if err != nil {
		return err
	}
	out.Session, out.Identity = shown, shown.Identity
	for i := range shown.Rows {
		row := &shown.Rows[i]
		if row.Tombstone || row.Earlier {
			continue
		}
		row.Again = &again{out.Thread, row.ID, out.Request + "-" + row.ID}
		row.Actions = append(row.Actions, link{"edit", playgroundHref(out.Thread) + "&edit=" + row.ID + "#message"})
		if row.ID == out.Edits && out.Content == "" && len(row.Messages) > 0 && row.Messages[0].Left == 0 {
			out.Content = row.Messages[0].Text
		}
	}
	return nil
}

// repliedHref returns the address that shows a thread's newest turns, above the form of the next message.
func repliedHref(thread string) string { return playgroundHref(thread) + "#message" }

// playgroundHref returns the address of a thread in the playground.
func playgroundHref(thread string) string {
	return root + "/playground?" + url.Values{threadField: {thread}}.Encode()
}

// messageOf reads a message from its form.
func messageOf(form url.Values) (m services.ChatMessage, err error) {
	m = services.ChatMessage{
		ThreadID: form.Get(threadField), RequestID: form.Get(requestField), UserID: form.Get("identity_id"),
		Content: strings.ReplaceAll(form.Get(contentField), "\r\n", "\n"),
	}
	for name, id := range map[string]string{
		threadField: m.ThreadID, requestField: m.RequestID, "identity_id": m.UserID,
	} {
		if id != "" && events.ValidID(id) != nil {
			return m, invalid(name, events.ErrID.Error())
		}
	}
	for name, to := range map[string]*uuid.UUID{editsField: &m.Edits, regeneratesField: &m.Regenerates} {
		if text := form.Get(name); text != "" {
			if *to, err = uuid.Parse(text); err != nil {
				return m, invalid(name, "must be the id of a turn")
			}
		}
	}
	if m.Regenerates != uuid.Nil {
		m.Content = ""
	} else if m.Content == "" {
		return m, invalid(contentField, "is required")
	}
	return m, nil
}

// prompt shows what the model would be sent with a message. Nothing is recorded.
func (s *surface) prompt(ctx context.Context, r *http.Request) (view, error) {
	form, err := readForm(r, mostForm)
	if err != nil {
		return view{}, err
	}
	m, err := messageOf(form)
	if err != nil {
		return view{}, err
	}
	out := playgroundView{Thread: m.ThreadID, Content: m.Content, Edits: form.Get(editsField), Identity: m.UserID}
	ask := services.ContextRequest{SessionID: m.ThreadID, Message: m.Content, TurnID: m.Edits}
	if ask.SessionID == "" {
		ask.SessionID = out.Request + "console-new" // a session that there is not
	}
	built, err := s.cfg.Contexts.Build(ctx, ask)
	if err != nil {
		return view{}, err
	}
	out.Prompt = &explainView{Explanation: services.Explanation{Prompt: built}}
	out.Prompt.fillPrompt(&room{roomOfTurns}, s.cfg.Tokens)
	if err := s.playgroundPage(ctx, r, &out); err != nil {
		return view{}, err
	}
	return view{"playground", "Playground", out}, nil
}

// send sends a message, waits for the whole answer, and leads to the thread. With a script the page streams instead.
func (s *surface) send(w http.ResponseWriter, r *http.Request) error {
	reply, err := s.chat(r, services.Quiet{})
	if err != nil {
		return err
	}
	policy(w.Header())
	s.renew(w, r)
	http.Redirect(w, r, repliedHref(reply.ThreadID), http.StatusSeeOther)
	return nil
}

// chat sends the message of a request's form.
func (s *surface) chat(r *http.Request, to services.Listener) (services.ChatReply, error) {
	form, err := readForm(r, mostForm)
	if err != nil {
		return services.ChatReply{}, err
	}
	m, err := messageOf(form)
	if err != nil {
		return services.ChatReply{}, err
	}
	if err := s.cfg.Admit(r.Context(), services.Entry{
		Kind: services.KindTurn, SessionID: m.ThreadID, IdentityID: m.UserID,
	}); err != nil {
		return services.ChatReply{}, err
	}
	wire.CallOf(r.Context()).Prominent()
	return s.cfg.Chat.Send(r.Context(), m, to)
}

// stream sends a message, and answers piece by piece: begun, delta, and then done or failed.
func (s *surface) stream(w http.ResponseWriter, r *http.Request) error {
	policy(w.Header())
	to := &pieces{sse: s.api.NewSSE(w, livePatience)}
	defer to.sse.End()
	still := s.api.Still(r, access.TurnsWrite|access.ContextRead)
	reply, err := s.chat(r.WithContext(to.sse.While(r.Context(), still)), to)
	switch {
	case err == nil:
		if !to.begun {
			to.sse.Begin() // the message was answered before
		}
		to.sse.Event("done", map[string]string{"page": repliedHref(reply.ThreadID)})
	case to.begun:
		_, say := statusOf(err)
		to.sse.Event("failed", map[string]string{"say": say, "page": playgroundHref(to.thread)})
	}
	return err
}

// pieces sends an answer while it is made.
type pieces struct {
	services.Quiet

	sse    *wire.SSE
	begun  bool
	thread string
}

func (p *pieces) Begun(of services.Step) {
	p.begun, p.thread = true, of.SessionID
	p.sse.Begin()
	p.sse.Event("begun", true)
}

func (p *pieces) Piece(of services.AnswerPiece) {
	if of.Said() && of.Text != "" {
		p.sse.Event("delta", map[string]string{"text": visible(of.Text)})
	}
}
