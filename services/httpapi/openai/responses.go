package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/message"
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
)

// answerTime bounds a whole answer, with the time that it waits for others; the model's own bound ends it earlier.
const answerTime = 5 * time.Minute

// clientPatience is how long an answer waits for a client that reads nothing.
const clientPatience = 5 * time.Second

// declareResponses adds the routes of responses.
func (s *surface) declareResponses() {
	here, both := s.cfg.Responses != nil, access.TurnsWrite|access.ContextRead
	s.call(http.MethodGet, oneResponse, both, here, answering, later, s.getResponse)
	s.call(http.MethodDelete, oneResponse, access.TurnsRedact, here, answering, later, s.deleteResponse)
	s.call(http.MethodPost, oneResponse+"/cancel", both, here, answering, later, s.cancelResponse)
	s.call(http.MethodGet, oneResponse+"/input_items", both, here, answering, later, s.inputItems)
	s.call(http.MethodPost, responses+"/input_tokens", both, here, answering, later, s.inputTokens)
	s.call(http.MethodPost, responses+"/compact", both, here, answering, later, s.compact)
	create := wire.Route{
		Method: http.MethodPost, Path: responses, Needs: both, Admit: later, Long: answerTime, Deadline: answerTime,

		Handle: s.createResponse,
	}
	if !here {
		create.Role = answering
	}
	s.routes = append(s.routes, create)
}

// who returns the caller of a call.
func (s *surface) who(ctx context.Context) respond.Caller {
	return respond.Caller{
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
		if errors.Is(err, respond.ErrResponseNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	err := s.cfg.Admit(ctx, services.Entry{Kind: services.KindTurn, SessionID: session, IdentityID: bound(ctx)})
	if errors.Is(err, services.ErrNoSession) {
		return respond.ErrConversation
	}
	return err
}

// asked reads a request for a response. The request is admitted before anything that it refers to is read.
func (s *surface) asked(ctx context.Context, r *http.Request) (respond.Ask, error) {
	raw, err := wire.ReadBody(r, s.cfg.MaxBody)
	if err != nil {
		return respond.Ask{}, err
	}
	ids := s.knownIn(ctx, "")
	request, err := respond.Parse(raw, s.cfg.HostedTools, ids.referredBy)
	if err != nil {
		return respond.Ask{}, err
	}
	if err := ids.admit(&request); err != nil {
		return respond.Ask{}, err
	}
	call := s.callOf(ctx, r, raw)
	if request.Conversation == "" && request.Previous == "" {
		call = s.beginningOf(ctx, r, raw)
	}
	a := respond.Ask{
		Request: request, Caller: s.who(ctx), Call: call, RequestID: requestID(call), OnPending: s.cfg.OnPending,
	}
	switch p := services.OnPending(r.Header.Get(pendingHeader)); p {
	case "":
	case services.Enqueue, services.Reject, services.Interrupt:
		a.OnPending = p
	default:
		return a, bad(pendingHeader, codeValue, "The header "+pendingHeader+" must be reject, enqueue or interrupt.")
	}
	return a, nil
}

// createResponse answers with a response, or with the events of its stream.
func (s *surface) createResponse(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	a, err := s.asked(ctx, r)
	if err != nil {
		return err
	}
	setRequestID(w.Header())
	if !a.Request.Stream {
		out, err := s.cfg.Responses.Create(ctx, a)
		if err != nil {
			return err
		}
		if out.Incomplete() { // the same request is cut again
			w.Header()["X-Should-Retry"] = []string{"false"}
		}
		wire.WriteJSON(w, http.StatusOK, out)
		return nil
	}
	sse, begun := s.api.NewSSE(w, clientPatience), false
	defer sse.End()
	a.Stream = respond.NewStream(func(together ...respond.Event) {
		if !begun {
			begun = true
			sse.Begin()
		}
		sse.Events(together...)
	})
	if _, err = s.cfg.Responses.Create(ctx, a); err != nil {
		e := errorOf(problemOf(err))
		a.Stream.Fail(e.Code, e.Param, e.Message)
	}
	return err
}

func (s *surface) getResponse(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	with, err := includesOf(r)
	if err != nil {
		return nil, err
	}
	if r.URL.Query().Get("stream") == "true" {
		return nil, bad("stream", "unsupported_value", "A response can't be streamed again yet.")
	}
	return s.cfg.Responses.Get(ctx, r.PathValue("response_id"), s.who(ctx), with)
}

// deleteResponse takes what a response brought out of its turns, and out of the log: its input and its answer. If that
// is all of a turn, the turn is redacted.
func (s *surface) deleteResponse(ctx context.Context, r *http.Request, h http.Header) (any, error) {
	id, call := r.PathValue("response_id"), s.callOf(ctx, r, nil)
	err := s.takeOut(ctx, h, id, call.Name())
	if errors.Is(err, respond.ErrResponseNotFound) && named(call) {
		var session string
		if session, err = s.cfg.Responses.StoodIn(ctx, id, s.who(ctx)); err == nil {
			err = s.deletedBefore(ctx, h, session, call, respond.ErrResponseNotFound)
		}
	}
	if err != nil {
		return nil, err
	}
	return deletedJSON{id, "response", true}, nil
}

// takeOut takes what a response brought out of its turns. The last event that does so has the name of the call.
func (s *surface) takeOut(ctx context.Context, h http.Header, id, call string) error {
	at, err := s.cfg.Responses.Where(ctx, id, s.who(ctx))
	if err != nil {
		return err
	}
	for turn, brought := range at.Before {
		if turn == at.TurnID {
			continue
		}
		if err := s.forget(ctx, h, at, turn, "", brought...); err != nil && !isGone(err) {
			return err
		}
	}
	err = s.forget(ctx, h, at, at.TurnID, call, append(at.Before[at.TurnID], at.Input, at.Answer)...)
	if isGone(err) {
		return respond.ErrResponseNotFound // another call was first
	}
	return err
}

// forget takes the messages out of a turn that the events of some sequences brought.
func (s *surface) forget(
	ctx context.Context, h http.Header, at respond.Place, turn uuid.UUID, call string, brought ...uint64,
) error {
	return s.prune(ctx, h, conversation.Prune{
		SessionID: at.SessionID, TurnID: turn, Call: call, Forget: brought,
		Keep: func(m conversation.Message) json.RawMessage {
			if slices.Contains(brought, m.First) {
				return nil
			}
			return s.kept(at.SessionID, at.Partition, m, "")
		},
	})
}

func (s *surface) cancelResponse(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	if _, err := s.cfg.Responses.Get(ctx, r.PathValue("response_id"), s.who(ctx), nil); err != nil {
		return nil, err
	}
	return nil, respond.ErrNotBackground
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
	page, err := s.cfg.Responses.InputItems(ctx, r.PathValue("response_id"), s.who(ctx), respond.Paging{
		Limit: p.limit, Asc: p.asc, After: p.after,
	})
	if err == nil && !page.Found {
		err = noAfter()
	}
	if err != nil {
		return nil, err
	}
	return listOf(shown(page.Items, with), itemID).thenMore(page.More), nil
}

func (s *surface) inputTokens(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	a, err := s.asked(ctx, r)
	if err != nil {
		return nil, err
	}
	n, err := s.cfg.Responses.InputTokens(ctx, a)
	if err != nil {
		return nil, err
	}
	return map[string]any{"object": "response.input_tokens", "input_tokens": n}, nil
}

// compact is a call that there is not yet. Without a route of its own it would be a response of that name.
func (s *surface) compact(context.Context, *http.Request, http.Header) (any, error) {
	return nil, wire.ErrNoRoute
}

// Responder answers requests for responses.
type Responder interface {
	Create(ctx context.Context, a respond.Ask) (respond.Response, error)
	Get(ctx context.Context, id string, who respond.Caller, with message.Includes) (respond.Response, error)
	Where(ctx context.Context, id string, who respond.Caller) (respond.Place, error)
	SessionOf(ctx context.Context, id string, who respond.Caller) (string, error)
	StoodIn(ctx context.Context, id string, who respond.Caller) (string, error)
	SessionOfItems(ctx context.Context, ids []string, who respond.Caller) (string, error)
	InputItems(ctx context.Context, id string, who respond.Caller, p respond.Paging) (respond.Page, error)
	InputTokens(ctx context.Context, a respond.Ask) (int64, error)
}
