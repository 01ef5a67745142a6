package v1

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/v1/uimessage"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
)

// uiChats adds the calls of chats that speak UI messages (docs/contract.md#ui-messages).
func (a *surface) uiChats() {
	const onChat = "/ui/chat/{chat_id}"
	stream := map[string]*huma.Response{
		"200": {Content: contentOf[string](a, "text/event-stream")},
		"201": {Description: "With X-Turnledger-Stream: durable; Location is the answer's stream, with a ticket for it"},
	}
	send := op("send-ui-message", access.TurnsWrite|access.ContextRead, "POST /ui/chat",
		"Ask the model with the messages of a chat of the AI SDK", unread, conflict, gone, tooBig, tooMany,
		http.StatusBadGateway).takesLong().within(chatDeadline).admitsItself()
	send.RequestBody = &huma.RequestBody{Required: true, Content: contentOf[uiBody](a, "application/json")}
	send.Responses = stream
	raw[anyAnswer](a, a.sendUI, send)
	watch := op("resume-ui-stream", access.ContextRead, "GET "+onChat+"/stream",
		"Watch the answer that is being made, from its beginning", unread).
		takesLong().within(chatDeadline).admitsItself()
	watch.Responses = map[string]*huma.Response{
		"200": {Content: contentOf[string](a, "text/event-stream")}, "204": {Description: "No answer is being made"},
	}
	raw[anyAnswer](a, a.watchUI, watch)
	stop := op("stop-ui-message", access.TurnsWrite, "POST "+onChat+"/stop",
		"End the answer that is being made with what is there", unread, notFound)
	stop.DefaultStatus = http.StatusAccepted
	stop.Responses = map[string]*huma.Response{
		"200": {Description: "No answer is being made", Content: contentOf[stoppedJSON](a, "application/json")},
	}
	call(a, a.stopUI, stop.admitsItself())
	call(a, a.uiMessages, op("list-ui-messages", access.ContextRead, "GET "+onChat+"/messages",
		"List a chat's messages, the newest page first, each page newest last", unread, notFound).admitsItself())
	read := op("read-answer-stream", access.ContextRead, "GET /streams/sessions/{session_id}/answers/{turn_id}",
		"Read the chunks of an answer by the protocol Durable Streams", unread, notFound).takesLong()
	read.Responses = map[string]*huma.Response{"200": {Content: map[string]*huma.MediaType{
		"application/json":  {Schema: &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeObject}}},
		"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString, Description: "Events data and control"}},
	}}, "204": {Description: "Nothing came while a long poll waited, or nothing comes any more"}}
	raw[anyAnswer](a, a.answerStream, read)
}

// uiBody documents the body of a chat's transport; what else an application adds is ignored.
type uiBody struct {
	_ struct{} `additionalProperties:"true"`

	ID              string                `json:"id" doc:"The chat: its session, which need not be there yet"`
	Messages        []uimessage.UIMessage `json:"messages,omitempty" doc:"The chat's messages; the last one is new"`
	Message         *uimessage.UIMessage  `json:"message,omitempty" doc:"The new message alone"`
	Trigger         string                `json:"trigger,omitempty" enum:"submit-message,regenerate-message"`
	MessageID       string                `json:"messageId,omitempty"`
	System          string                `json:"system,omitempty" doc:"Ignored of a browser's token"`
	Tools           any                   `json:"tools,omitempty" doc:"A list of functions in OpenAI's form, or an object of the AI SDK's tools by their names"`
	MaxOutputTokens int64                 `json:"max_output_tokens,omitempty"`
}

type uiIn struct {
	Stream string `header:"X-Turnledger-Stream" doc:"durable: answer with the Location of the answer's stream"`

	OnDisconnect onDisconnect `header:"X-Turnledger-On-Disconnect" doc:"Whether the answer goes on once its client has gone: stop or continue"`

	Key string `header:"Idempotency-Key" doc:"Makes a regenerate safe to send again; a message's id does so for the message"`
}

const durably = "durable"

func (in *uiIn) durable() (bool, error) {
	if in.Stream != "" && in.Stream != durably {
		return false, invalid("X-Turnledger-Stream", "must be durable")
	}
	return in.Stream == durably, nil
}

// uiAsk reads a request, and admits it.
func (a *surface) uiAsk(r *http.Request, in *uiIn) (ask services.StepAsk, err error) {
	ctx := r.Context()
	body, err := wire.ReadBody(r, a.cfg.MaxChatBody)
	if err != nil {
		return ask, err
	}
	req, err := uimessage.Parse(body)
	if err != nil {
		return ask, err
	}
	caller := wire.CallOf(ctx).Caller
	if caller.Token {
		req.System = ""
	}
	ask, named, err := req.Ask()
	if err != nil {
		return ask, err
	}
	noteSession(ctx, req.ID)
	if err := a.cfg.Admit(ctx, services.Entry{
		Kind: services.KindTurn, SessionID: req.ID, IdentityID: caller.IdentityID, Begins: true,
	}); err != nil {
		return ask, err
	}
	if in.Key != "" && named == nil {
		named = []string{"key", in.Key}
	}
	if named != nil {
		ask.Call.Key = a.digest(named...)
	}
	ask.Call.Body = a.digest("body", string(body))
	ask.RequestID = cmp.Or(ask.Completion.Chat.Message, "ui."+cmp.Or(ask.Call.Key, uuid.NewString()))
	ask.OnPending, ask.OnDisconnect = services.Enqueue, services.OnDisconnect(in.OnDisconnect)
	ask.Caller = services.Caller{
		Identity: caller.IdentityID, SourceHash: a.cfg.Source(ctx),
		May: func(ctx context.Context, sessionID string) error {
			return a.cfg.Admit(ctx, services.Entry{SessionID: sessionID})
		},
	}
	return ask, nil
}

// digest returns 48 hex digits that depend on the log's key.
func (a *surface) digest(parts ...string) string {
	mac := hmac.New(sha256.New, []byte(a.cfg.ItemKey))
	for _, p := range append([]string{"ui"}, parts...) {
		_, _ = mac.Write([]byte(p + "\x00")) // never fails
	}
	return hex.EncodeToString(mac.Sum(nil)[:24])
}

// uiProblem returns the problem of an error of the answerer.
func uiProblem(err error) error {
	switch {
	case errors.Is(err, services.ErrNoInput):
		return invalid("messages", "have nothing to answer")
	case errors.Is(err, services.ErrNoResponse):
		return decide.ErrTurnRedacted
	case errors.Is(err, services.ErrTooManyAnswers):
		return &services.TooOften{Wait: time.Second}
	case errors.Is(err, services.ErrPromptTooLong):
		return invalid("messages", "are longer than the model's context")
	}
	return err
}

// sendUI answers with the chunks of an answer, or with where they are to be read.
func (a *surface) sendUI(w http.ResponseWriter, r *http.Request, in *uiIn) error {
	durable, err := in.durable()
	if err != nil {
		return err
	}
	ask, err := a.uiAsk(r, in)
	if err != nil {
		return err
	}
	if ask.Background = durable; durable {
		out, err := a.cfg.Responses.Begin(r.Context(), ask)
		if err != nil && !out.Stored {
			return uiProblem(err)
		}
		return a.locate(w, r, http.StatusCreated, out.Step)
	}
	to := a.newChunks(r.Context(), w)
	defer to.sse.End()
	ctx := to.sse.While(r.Context(), a.wire.Still(r, access.TurnsWrite|access.ContextRead))
	_, err = a.cfg.Responses.Respond(ctx, ask, to)
	if err = uiProblem(err); to.begun {
		to.sse.Done()
	}
	return err
}

// chunks sends an answer as a UI message stream.
type chunks struct {
	*uimessage.Stream

	ctx    context.Context //nolint:containedctx // notes the session in the log line
	header http.Header
	sse    *wire.SSE
	begun  bool
	// before is the message that the answer goes on with, to be sent first.
	before uimessage.UIMessage
	// number is that of the last chunk, and behind that of the last one which is not sent.
	number, behind int
}

func (a *surface) newChunks(ctx context.Context, w http.ResponseWriter) *chunks {
	c := &chunks{ctx: ctx, header: w.Header(), sse: a.wire.NewSSE(w, chatPatience)}
	c.anew()
	return c
}

// anew lets the answer be told anew: what was sent of it is not sent again.
func (c *chunks) anew() {
	c.behind, c.number = max(c.behind, c.number), 0
	c.Stream = uimessage.NewStream(func(chunk any) {
		if c.number++; c.number > c.behind {
			c.sse.Data(chunk)
		}
	}, said)
}

// said returns what is told of an error within a stream.
func said(err error) string { return problemOf(uiProblem(err)).Detail }

// Begun implements services.Listener.
func (c *chunks) Begun(s services.Step) {
	c.begun = true
	noteSession(c.ctx, s.SessionID)
	notePosition(c.ctx, s.Asked)
	h := c.header
	h.Set("X-Vercel-Ai-Ui-Message-Stream", "v1")
	stands(h, s)
	if c.sse.Begin(); c.before.ID != "" {
		c.Replay(c.before)
	}
	c.Stream.Begun(s)
}

// stands says in headers where a turn stands, and what was recorded.
func stands(h http.Header, s services.Step) {
	h.Set("X-Turnledger-Session", url.PathEscape(s.SessionID))
	h.Set("X-Turnledger-Turn", s.TurnID.String())
	if s.Asked.Seq > 0 {
		h.Set("X-Turnledger-Position", s.Asked.String())
		h.Set("X-Turnledger-Recorded", string(s.Recorded))
	}
}

type uiWatchIn struct {
	ChatID string `path:"chat_id" doc:"The chat: its session"`
	Stream string `header:"X-Turnledger-Stream" doc:"durable: answer with the Location of the answer's stream"`
}

// watchUI sends the answer that is being made, as the call that asked for it sends it; the steps before it come first,
// where it goes on with an answer.
func (a *surface) watchUI(w http.ResponseWriter, r *http.Request, in *uiWatchIn) error {
	durable, err := (&uiIn{Stream: in.Stream}).durable()
	if err != nil {
		return err
	}
	current, err := a.inChat(r.Context(), in.ChatID)
	if errors.Is(err, services.ErrNoSession) { // whoever asks whether something runs is told that nothing does
		err = cmp.Or(a.cfg.Admit(r.Context(), services.Entry{}), services.ErrNotRunning)
	}
	if err == nil {
		err = a.watchChat(w, r, current, durable)
	}
	if errors.Is(err, services.ErrNotRunning) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return err
}

func (a *surface) watchChat(w http.ResponseWriter, r *http.Request, current string, durable bool) error {
	step, err := a.runningIn(r.Context(), current)
	if err != nil {
		return err
	}
	before, err := a.before(r.Context(), current, step)
	if err != nil {
		return err
	}
	if durable {
		return a.locate(w, r, http.StatusOK, step)
	}
	to := a.newChunks(r.Context(), w)
	to.before = before
	defer to.sse.End()
	ctx := to.sse.While(r.Context(), a.wire.Still(r, access.ContextRead))
	err = a.cfg.Running.Watch(ctx, current, step.TurnID, to)
	for errors.Is(err, services.ErrAnswerLost) { // another process may go on with it
		to.anew()
		err = a.cfg.Running.Watch(ctx, current, step.TurnID, to)
		if errors.Is(err, services.ErrNotRunning) && to.begun {
			err = services.ErrAnswerLost
			break
		}
	}
	if err != nil && to.begun && ctx.Err() == nil {
		to.Ended(services.Answered{Err: err})
	}
	if to.begun {
		to.sse.Done()
	}
	return err
}

// runningIn returns what is being answered in a session.
func (a *surface) runningIn(ctx context.Context, sessionID string) (services.Step, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	for to := (&beginning{end: end}); ; {
		err := a.cfg.Running.Watch(ctx, sessionID, uuid.Nil, to)
		switch {
		case to.step.TurnID != uuid.Nil:
			return to.step, nil
		case !errors.Is(err, services.ErrAnswerLost):
			return to.step, err
		}
	}
}

// before returns the message that an answer which is being made goes on with; or services.ErrNotRunning, once it is
// recorded: its watcher has it already.
func (a *surface) before(ctx context.Context, sessionID string, s services.Step) (m uimessage.UIMessage, err error) {
	reading, err := a.read(ctx, services.Ask{SessionID: sessionID, AllTurns: true})
	if err != nil {
		return m, err
	}
	t := reading.State.Turn(s.TurnID)
	later := func(x session.Extended) bool { return x.Seq > s.Asked.Seq }
	switch {
	case t == nil, s.Extends && slices.ContainsFunc(t.Extensions(), later), !s.Extends && t.Status != session.Pending:
		return m, services.ErrNotRunning
	case !s.Extends:
		return m, nil
	}
	for _, listed := range a.messagesOf(&reading, t) {
		m = listed.UIMessage // the answer is the last one
	}
	return m, nil
}

// beginning notes what is being answered, and listens no longer.
type beginning struct {
	services.Quiet

	step services.Step
	end  func()
}

// Begun implements services.Listener.
func (b *beginning) Begun(s services.Step) {
	b.step = s
	b.end()
}

// inChat admits a call that is about a chat, and returns the session that the chat goes on in.
func (a *surface) inChat(ctx context.Context, chat string) (current string, err error) {
	if err := validID("chat_id", chat); err != nil {
		return "", err
	}
	noteSession(ctx, chat)
	if err := a.cfg.Admit(ctx, services.Entry{SessionID: chat}); err != nil {
		return "", err
	}
	return services.CurrentBranch(ctx, a.cfg.Sessions, chat)
}

type uiStopIn struct {
	ChatID string `path:"chat_id" doc:"The chat: its session"`
	Body   *struct {
		TurnID *string `json:"turn_id,omitempty" doc:"Only the answer of this turn; else the one that runs on arrival"`
	}
}

func (a *surface) stopUI(ctx context.Context, in *uiStopIn) (out stoppedJSON, err error) {
	current, err := a.inChat(ctx, in.ChatID)
	if err != nil {
		return out, err
	}
	return a.stopIn(ctx, current, in.Body.TurnID)
}

type uiMessagesIn struct {
	ChatID string `path:"chat_id" doc:"The chat: its session"`
	Limit  number `query:"limit" doc:"At most so many messages; 50 by default, clamped to 200"`
	Cursor string `query:"cursor" doc:"next_cursor of the page before, for older messages"`
}

type uiMessagesJSON struct {
	Messages   []uimessage.UIMessage `json:"messages" doc:"The newest last"`
	NextCursor *string               `json:"next_cursor" doc:"For the next page; null at the end"`
}

// listedUI is a message with its cursor.
type listedUI struct {
	uimessage.UIMessage

	cursor string
}

// uiMessages lists a page of a chat's messages. A cursor names the oldest message of the page before.
func (a *surface) uiMessages(ctx context.Context, in *uiMessagesIn) (out uiMessagesJSON, err error) {
	out.Messages = []uimessage.UIMessage{}
	current, err := a.inChat(ctx, in.ChatID)
	if err != nil {
		return out, err
	}
	reading, err := a.read(ctx, services.Ask{SessionID: current, AllTurns: true})
	if err != nil {
		return out, err
	}
	turn, role, _ := strings.Cut(in.Cursor, ".")
	var all []listedUI
	found := in.Cursor == ""
	for _, t := range reading.State.Turns {
		if t.ID.String() == turn {
			found = true
			if role == "user" {
				break
			}
		}
		all = append(all, a.messagesOf(&reading, t)...)
		if t.ID.String() == turn {
			all = slices.DeleteFunc(all, func(m listedUI) bool { return m.cursor == in.Cursor })
			break
		}
	}
	if !found {
		return out, invalid("cursor", "must be the next_cursor of the page before")
	}
	limit := min(cmp.Or(int(in.Limit), defaultSessions), maxSessions)
	if len(all) > limit {
		all = all[len(all)-limit:]
		out.NextCursor = &all[0].cursor
	}
	for _, m := range all {
		out.Messages = append(out.Messages, m.UIMessage)
	}
	return out, a.asksIn(ctx, &reading, out.Messages)
}

// asksIn makes calls of the newest answer ask for approval, if they wait for that.
func (a *surface) asksIn(ctx context.Context, r *services.Reading, messages []uimessage.UIMessage) error {
	n := len(messages) - 1
	if n < 0 || !uimessage.Open(messages[n]) {
		return nil
	}
	turn, _ := uuid.Parse(messages[n].ID) // that of an answer is its turn
	t := r.State.Turn(turn)
	if t == nil {
		return nil
	}
	_, partition, _ := r.State.Origin(t, r.Position.Partition)
	step := items.Step{Position: events.Position{Partition: partition, Seq: t.Started}, TurnID: turn}
	who := services.Caller{May: func(context.Context, string) error { return nil }}
	asked, err := a.cfg.Responses.Response(ctx, items.ResponseID(step), who)
	if errors.Is(err, services.ErrNoResponse) { // no call of a surface asked
		return nil
	}
	uimessage.Asks(messages[n], asked.Settings)
	return err
}

// messagesOf returns the messages of a turn, if it is shown.
func (a *surface) messagesOf(r *services.Reading, t *session.Turn) (out []listedUI) {
	if !r.State.Shown(t) || t.Status != session.Pending && t.Status != session.Finalized {
		return nil
	}
	of, partition, _ := r.State.Origin(t, r.Position.Partition)
	ids := items.Minter{Key: []byte(a.cfg.ItemKey)}
	for _, m := range uimessage.OfTurn(t.RequestID, t.ID.String(), ids.OfTurn(of, partition, t)) {
		out = append(out, listedUI{m, t.ID.String() + "." + m.Role})
	}
	return out
}
