package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Paths of responses, and the role whose processes answer them.
const (
	responses     = "/v1/responses"
	oneResponse   = responses + "/{response_id}"
	answering     = "chat"
	pendingHeader = "X-Turnledger-On-Pending"
	// disconnectHeader says what happens to the answer once the client has gone.
	disconnectHeader = "X-Turnledger-On-Disconnect"
)

// answerTime bounds a whole answer, with the time that it waits for others; the model's own bound ends it earlier.
const answerTime = 5 * time.Minute

// clientPatience is how long an answer waits for a client that reads nothing.
const clientPatience = 5 * time.Second

// declareResponses adds the routes of responses.
func (s *surface) declareResponses() {
	here, both := s.cfg.Responses != nil, access.TurnsWrite|access.ContextRead
	get := wire.Route{
		Method: http.MethodGet, Path: oneResponse, Needs: access.ContextRead, Admit: later, Long: answerTime,
		Deadline: answerTime, Handle: s.getResponse,
	}
	s.call(http.MethodDelete, oneResponse, access.TurnsRedact, here, answering, later, s.deleteResponse)
	s.call(http.MethodPost, oneResponse+"/cancel", access.TurnsWrite, here, answering, later, s.cancelResponse)
	s.call(http.MethodGet, oneResponse+"/input_items", both, here, answering, later, s.inputItems)
	s.call(http.MethodPost, responses+"/input_tokens", both, here, answering, later, s.inputTokens)
	create := wire.Route{
		Method: http.MethodPost, Path: responses, Needs: both, Admit: later, Long: answerTime, Deadline: answerTime,
		Handle: s.createResponse,
	}
	compact := create
	compact.Path, compact.Handle = responses+"/compact", s.compact
	if !here {
		create.Role, get.Role, compact.Role = answering, answering, answering
	}
	s.routes = append(s.routes, create, get, compact)
}

// who returns the caller of a call.
func (s *surface) who(ctx context.Context) services.Caller {
	return services.Caller{
		Identity: bound(ctx), SourceHash: s.cfg.Source(ctx),
		May: func(ctx context.Context, sessionID string) error {
			return s.cfg.Admit(ctx, services.Entry{SessionID: sessionID})
		},
	}
}

// admit lets a request for a response into the session that it goes on with. A response that there is not is refused by
// what is done for the request, and charges nobody.
func (s *surface) admit(ctx context.Context, r *respond.Request) error {
	session := r.Conversation
	if session == "" && r.Previous != "" && s.cfg.Limiter != nil {
		var err error
		session, err = s.cfg.Responses.SessionOf(ctx, r.Previous, s.who(ctx))
		if errors.Is(err, services.ErrNoResponse) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	err := s.cfg.Admit(ctx, services.Entry{Kind: services.KindTurn, SessionID: session, IdentityID: bound(ctx)})
	if errors.Is(err, services.ErrNoSession) {
		return services.ErrNoConversation
	}
	return err
}

// asked reads a request for a response. The request is admitted before anything that it refers to is read.
func (s *surface) asked(ctx context.Context, r *http.Request) (a respond.Request, err error) {
	raw, err := wire.ReadBody(r, s.cfg.MaxBody)
	if err != nil {
		return a, err
	}
	refer, admit := s.referencesOf(ctx)
	if a, err = respond.Parse(raw, s.cfg.HostedTools, refer); err != nil {
		return a, err
	}
	if err = admit(&a); err != nil {
		return a, err
	}
	asks := whatever(raw)
	a.Call = s.callOf(ctx, r, asks)
	if a.Conversation == "" && a.Previous == "" {
		a.Call = s.beginningOf(ctx, r, asks)
	}
	a.Caller, a.RequestID = s.who(ctx), requestID(a.Call)
	a.Streams = a.Stream
	if a.OnPending, err = s.onPending(r); err == nil {
		a.OnDisconnect, err = onDisconnect(r)
	}
	return a, err
}

// onDisconnect returns what a request wants to happen once its client has gone; "" where it says nothing.
func onDisconnect(r *http.Request) (services.OnDisconnect, error) {
	d := services.OnDisconnect(r.Header.Get(disconnectHeader))
	if d != "" && !d.Valid() {
		return "", bad(disconnectHeader, codeValue, "The header "+disconnectHeader+" must be stop or continue.")
	}
	return d, nil
}

// onPending returns what a request wants to happen while others are answered.
func (s *surface) onPending(r *http.Request) (services.OnPending, error) {
	switch p := services.OnPending(r.Header.Get(pendingHeader)); p {
	case "":
		return s.cfg.OnPending, nil
	case services.Enqueue, services.Reject, services.Interrupt:
		return p, nil
	default:
		return "", bad(pendingHeader, codeValue, "The header "+pendingHeader+" must be reject, enqueue or interrupt.")
	}
}

// whatever returns what a request asks for, however it is written and the answer is to be sent.
func whatever(body []byte) []byte {
	m, err := respond.Members(body)
	if err != nil {
		return body
	}
	delete(m, "stream")
	delete(m, "stream_options")
	raw, _ := json.Marshal(m) // it came from JSON
	return raw
}

// createResponse answers with a response, or with the events of its stream.
func (s *surface) createResponse(w http.ResponseWriter, r *http.Request) error {
	a, err := s.asked(r.Context(), r)
	if err != nil {
		return err
	}
	setRequestID(w.Header())
	if a.Background && !a.Stream {
		out, err := s.cfg.Responses.Begin(r.Context(), a.StepAsk)
		if err == nil {
			wire.WriteJSON(w, http.StatusOK, respond.Form(out, a.Include))
		}
		return err
	}
	if a.Stream {
		sse := s.api.NewSSE(w, clientPatience)
		defer sse.End()
		to := &streamed{respond.NewStream(a.Include, sse.Events), sse}
		ctx := sse.While(r.Context(), s.api.Still(r, access.TurnsWrite|access.ContextRead))
		_, err := s.cfg.Responses.Respond(ctx, a.StepAsk, to)
		return err
	}
	out, err := s.cfg.Responses.Respond(r.Context(), a.StepAsk, services.Quiet{})
	if err != nil {
		return err
	}
	form := respond.Form(out, a.Include)
	if form.Incomplete() { // the same request is cut again
		w.Header()["X-Should-Retry"] = []string{"false"}
	}
	wire.WriteJSON(w, http.StatusOK, form)
	return nil
}

// streamed sends a response while it is made.
type streamed struct {
	*respond.Stream

	sse *wire.SSE
}

// Begun implements services.Listener.
func (s *streamed) Begun(step services.Step) {
	s.sse.Begin()
	s.Stream.Begun(step)
}

// Ended implements services.Listener. What is not the model's failure says nothing of the response.
func (s *streamed) Ended(a services.Answered) {
	if a.Err == nil || respond.ModelFailed(a.Err) {
		s.Stream.Ended(a)
		return
	}
	e := errorOf(problemOf(a.Err))
	s.Fail(e.Code, e.Param, e.Message)
}

// getResponse answers with a response, or with the events of its stream behind a number.
func (s *surface) getResponse(w http.ResponseWriter, r *http.Request) error {
	with, err := includesOf(r)
	if err != nil {
		return err
	}
	ctx, id, query := r.Context(), r.PathValue("response_id"), r.URL.Query()
	if query.Get("stream") != "true" {
		out, err := s.cfg.Responses.Response(ctx, id, s.who(ctx))
		if err == nil {
			setRequestID(w.Header())
			wire.WriteJSON(w, http.StatusOK, respond.Form(out, with))
		}
		return err
	}
	after := -1
	if text := query.Get("starting_after"); text != "" {
		if after, err = strconv.Atoi(text); err != nil || after < 0 {
			return bad("starting_after", codeType, "'starting_after' must be a sequence number.")
		}
	}
	setRequestID(w.Header())
	sse := s.api.NewSSE(w, clientPatience)
	defer sse.End()
	ctx = sse.While(ctx, s.api.Still(r, access.ContextRead))
	for {
		to := &streamed{respond.NewStream(with, sse.Events).After(after), sse}
		err := s.cfg.Responses.WatchResponse(ctx, id, s.who(ctx), to)
		if !errors.Is(err, services.ErrAnswerLost) {
			return err
		}
		after = max(after, to.Sent())
	}
}

// deleteResponse takes what a response brought out of its turns, and out of the log: its input and its answer.
func (s *surface) deleteResponse(ctx context.Context, r *http.Request, h http.Header) (any, error) {
	id := r.PathValue("response_id")
	receipt, err := s.cfg.Responses.DeleteResponse(ctx, id, s.who(ctx), s.callOf(ctx, r, nil))
	if err != nil {
		return nil, err
	}
	h.Set(receiptHeader, receipt.String())
	return deletedJSON{id, "response", true}, nil
}

func (s *surface) cancelResponse(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	out, err := s.cfg.Responses.CancelResponse(ctx, r.PathValue("response_id"), s.who(ctx))
	if err != nil {
		return nil, err
	}
	if may := access.CallOf(ctx).Caller.Scopes; may != 0 && may&access.ContextRead == 0 { // 0: nobody needs a key
		out.Output = nil
		delete(out.Settings, "instructions")
	}
	return respond.Form(out, nil), nil
}

func (s *surface) inputItems(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	p, err := pagingOf(r)
	if err != nil {
		return nil, err
	}
	with, err := includesOf(r)
	if err != nil {
		return nil, err
	}
	page, err := s.cfg.Responses.InputItems(ctx, r.PathValue("response_id"), s.who(ctx), p)
	return shownPage(ctx, page, with, err)
}

func (s *surface) inputTokens(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	a, err := s.asked(ctx, r)
	if err != nil {
		return nil, err
	}
	n, err := s.cfg.Responses.CountTokens(ctx, a.StepAsk)
	if err != nil {
		return nil, err
	}
	return map[string]any{"object": "response.input_tokens", "input_tokens": n}, nil
}

// compact answers with a compaction of the history that a response would go on with.
func (s *surface) compact(w http.ResponseWriter, r *http.Request) error {
	a, err := s.asked(r.Context(), r)
	if err != nil {
		return err
	}
	c, err := s.cfg.Responses.Compact(r.Context(), a.StepAsk)
	if err == nil {
		setRequestID(w.Header())
		wire.WriteJSON(w, http.StatusOK, respond.CompactionForm(c))
	}
	return err
}
