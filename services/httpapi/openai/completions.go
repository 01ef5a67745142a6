package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/openai/complete"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
)

const completions = "/v1/chat/completions"

// Headers of chat completions.
const (
	sessionHeader  = "X-Turnledger-Session"
	historyHeader  = "X-Turnledger-History"
	turnHeader     = "X-Turnledger-Turn"
	positionHeader = "X-Turnledger-Position"
	recordedHeader = "X-Turnledger-Recorded"
)

// historyOff: nothing is recorded.
const historyOff services.History = "off"

// declareCompletions adds the route of chat completions.
func (s *surface) declareCompletions() {
	t := wire.Route{
		Method: http.MethodPost, Path: completions, Needs: access.TurnsWrite | access.ContextRead, Admit: later,
		Long: answerTime, Deadline: answerTime, Handle: s.complete,
	}
	if s.cfg.Responses == nil {
		t.Role = answering
	}
	s.routes = append(s.routes, t)
}

// sessionOf returns the session that a chat completion names, or "".
func (s *surface) sessionOf(r *http.Request, c *complete.Request) (string, error) {
	id, from := r.Header.Get(sessionHeader), sessionHeader
	if id == "" {
		from = "metadata.session_id"
		if !message.IsNull(c.Session) && (json.Unmarshal(c.Session, &id) != nil || id == "") {
			return "", bad(from, codeValue, from+" is no id of a session.")
		}
	}
	for _, name := range s.cfg.SessionHeaders {
		if id == "" {
			id, from = r.Header.Get(name), name
		}
	}
	if id == "" {
		return "", nil
	}
	var err error
	if from != "metadata.session_id" {
		id, err = url.PathUnescape(id)
	}
	if err != nil || decide.ValidIDs("session_id", id) != nil {
		return "", bad(from, codeValue, from+" is no id of a session.")
	}
	return id, nil
}

// history returns the mode of a chat completion.
func (s *surface) history(r *http.Request) (services.History, error) {
	mode := services.History(r.Header.Get(historyHeader))
	if mode == "" {
		mode = s.cfg.ChatHistory
	}
	known := []services.History{services.HistoryAuto, services.HistoryServer, services.HistoryClient, historyOff}
	if !slices.Contains(known, mode) {
		return "", bad(historyHeader, codeValue, "The header "+historyHeader+" must be auto, server, client or off.")
	}
	return mode, nil
}

// completionOf reads a request for a chat completion, and admits it.
func (s *surface) completionOf(ctx context.Context, r *http.Request) (c complete.Request, err error) {
	raw, err := wire.ReadBody(r, s.cfg.MaxBody)
	if err != nil {
		return c, err
	}
	if c, err = complete.Parse(raw); err != nil {
		return c, err
	}
	session, err := s.sessionOf(r, &c)
	if err != nil {
		return c, err
	}
	mode, err := s.history(r)
	if err == nil && session != "" && mode != historyOff {
		err = c.In(session, mode)
	}
	if err != nil {
		return c, err
	}
	c.Call = s.callOf(ctx, r, append([]byte(session+"\x00"), whatever(raw)...))
	c.Caller, c.RequestID = s.who(ctx), requestID(c.Call)
	if c.OnPending, err = s.onPending(r); err == nil {
		c.OnDisconnect, err = onDisconnect(r)
	}
	if err != nil {
		return c, err
	}
	return c, s.enter(ctx, c.Completion.Session)
}

// enter lets a call into a session. A bound caller may begin one that there is not.
func (s *surface) enter(ctx context.Context, session string) error {
	e := services.Entry{Kind: services.KindTurn, SessionID: session, IdentityID: bound(ctx)}
	if session != "" && e.IdentityID != "" {
		r, err := s.cfg.LinkReader.Read(ctx, services.Ask{SessionID: session, Own: true})
		if err != nil {
			return err
		}
		if r.State.Applied == 0 && r.State.Identity == "" {
			e.SessionID = ""
		}
	}
	return s.cfg.Admit(ctx, e)
}

// complete answers with a chat completion, or with the chunks of its stream.
func (s *surface) complete(w http.ResponseWriter, r *http.Request) error {
	c, err := s.completionOf(r.Context(), r)
	if err != nil {
		return err
	}
	setRequestID(w.Header())
	to := &completing{header: w.Header(), ctx: r.Context()}
	ctx := r.Context()
	if c.Stream {
		to.sse = s.api.NewSSE(w, clientPatience)
		defer to.sse.End()
		ctx = to.sse.While(ctx, s.api.Still(r, access.TurnsWrite|access.ContextRead))
		to.stream = c.NewStream(to.sse.Data)
	}
	out, err := s.cfg.Responses.Respond(ctx, c.StepAsk, to)
	switch {
	case err != nil && c.Stream && !to.sse.Refused():
		to.sse.Data(map[string]*apiError{"error": errorOf(problemOf(err))})
		return err
	case err != nil:
		return refuseCompletion(w, err, c.Store)
	case c.Stream:
		to.sse.Done()
	default:
		wire.WriteJSON(w, http.StatusOK, c.Form(out))
	}
	return nil
}

// completing hears a chat completion while it is made.
type completing struct {
	header http.Header
	ctx    context.Context //nolint:containedctx // notes the session in the log line
	sse    *wire.SSE
	stream *complete.Stream
}

// Begun implements services.Listener.
func (c *completing) Begun(step services.Step) {
	c.header.Set(recordedHeader, string(step.Recorded))
	if step.SessionID != "" {
		noteSession(c.ctx, step.SessionID)
		notePosition(c.ctx, step.Asked)
		c.header.Set(sessionHeader, url.PathEscape(step.SessionID))
		c.header.Set(turnHeader, step.TurnID.String())
		c.header.Set(positionHeader, step.Asked.String())
	}
	if c.stream != nil {
		c.stream.Begun(step)
		c.sse.BeginLater() // the model may refuse before its first word
	}
}

// Piece implements services.Listener.
func (c *completing) Piece(p services.AnswerPiece) {
	if c.stream != nil {
		c.stream.Piece(p)
	}
}

// Ended implements services.Listener.
func (c *completing) Ended(a services.Answered) {
	if c.stream != nil {
		c.stream.Ended(a)
	}
}

// passed are the statuses of a model's endpoint that are the caller's to mend.
var passed = []int{
	http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity,
	http.StatusTooManyRequests,
}

// refuseCompletion answers with the refusal of the model's endpoint where that is the caller's to mend: with its status
// and names, and words of ours. kept: the request was recorded.
func refuseCompletion(w http.ResponseWriter, err error, kept bool) error {
	refused, is := errors.AsType[*services.ModelRefusal](err)
	if !is || !slices.Contains(passed, refused.Status) {
		if errors.Is(err, services.ErrPromptTooLong) {
			return bad("messages", "context_length_exceeded", "The messages are longer than the model's context.")
		}
		return err
	}
	setRequestID(w.Header())
	p := problems.Of(err)
	if refused.Status == http.StatusTooManyRequests {
		p.After = max(p.After, time.Second)
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter()))
		w.Header()["X-Should-Retry"] = []string{"true"}
	} else {
		w.Header()["X-Should-Retry"] = []string{"false"}
	}
	kind := cmp.Or(refused.Type, invalidRequest)
	words := "The model's endpoint refused the request."
	if kept {
		words += " It is kept."
	}
	wire.WriteJSON(w, refused.Status, map[string]*apiError{
		"error": {words, kind, optional(refused.Param), optional(refused.Code)},
	})
	return err
}
