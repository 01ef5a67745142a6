package v1

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// runs adds the calls for answers that are being made.
func (a *surface) runs() {
	watch := op("watch-message", access.ContextRead, "GET /threads/{thread_id}/messages/stream",
		"Watch the answer that is being made, from its beginning: begun, delta, done or error", unread, notFound)
	watch = watch.takesLong().within(chatDeadline).admitsItself()
	watch.Responses = map[string]*huma.Response{
		"200": {Content: contentOf[string](a, "text/event-stream")}, "204": {Description: "No answer is being made"},
	}
	raw[anyAnswer](a, a.watch, watch)
	stop := op("stop-message", access.TurnsWrite, "POST /threads/{thread_id}/stop",
		"End the answer that is being made with what is there", unread, notFound)
	stop.Responses = map[string]*huma.Response{
		"200": {Description: "No answer is being made", Content: contentOf[stoppedJSON](a, "application/json")},
	}
	stop.DefaultStatus = http.StatusAccepted
	call(a, a.stop, stop.admitsItself())
}

type watchIn struct {
	ThreadID string      `path:"thread_id" doc:"The session"`
	From     eventNumber `query:"from" doc:"Goes on behind the event of this id"`
	TurnID   string      `query:"turn_id" doc:"Only the answer of this turn; else the one that runs before the others"`
	LastID   eventNumber `header:"Last-Event-ID" doc:"The same as from; wins over it"`
}

// eventNumber is the id of an event of an answer; 0 where none was sent.
type eventNumber int

// UnmarshalText reads a number.
func (n *eventNumber) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 10, 31)
	if err != nil {
		return invalid("", "must be the id of an event: a whole number")
	}
	*n = eventNumber(v)
	return nil
}

// Schema documents the number.
func (eventNumber) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeInteger} }

// inThread admits a call that is about what runs in a thread.
func (a *surface) inThread(ctx context.Context, thread string) error {
	if err := validID("thread_id", thread); err != nil {
		return err
	}
	noteSession(ctx, thread)
	return a.cfg.Admit(ctx, services.Entry{SessionID: thread})
}

// watch sends the answer that is being made as the call that asked for it sends it, event for event.
func (a *surface) watch(w http.ResponseWriter, r *http.Request, in *watchIn) error {
	if err := a.inThread(r.Context(), in.ThreadID); err != nil {
		return err
	}
	turn := uuid.Nil
	if in.TurnID != "" {
		turn = namedTurn(&in.TurnID)
	}
	to := &watched{pieces: a.newPieces(r.Context(), w)}
	defer to.sse.End()
	ctx := to.sse.While(r.Context(), a.wire.Still(r, access.ContextRead))
	if to.behind = int(in.From); in.LastID > 0 {
		to.behind = int(in.LastID)
	}
	err := a.cfg.Running.Watch(ctx, in.ThreadID, turn, to)
	for errors.Is(err, services.ErrAnswerLost) {
		lost := to.number
		to.behind, to.number = max(to.behind, lost), 0
		if err = a.cfg.Running.Watch(ctx, in.ThreadID, to.turn, to); errors.Is(err, services.ErrNotRunning) {
			to.behind, to.number, err = 0, lost, services.ErrAnswerLost
			break
		}
	}
	switch {
	case errors.Is(err, services.ErrNotRunning):
		w.WriteHeader(http.StatusNoContent)
		return nil
	case err != nil && to.begun:
		to.event("error", problemOf(err))
	}
	return err
}

// watched sends an answer to one who watches it.
type watched struct {
	*pieces

	turn uuid.UUID
}

// Begun implements services.Listener.
func (p *watched) Begun(s services.Step) {
	p.turn = s.TurnID
	p.pieces.Begun(s)
}

// Ended implements services.Listener: whoever watches is told what the call that asked is told.
func (p *watched) Ended(of services.Answered) {
	switch {
	case of.Err != nil:
		p.event("error", problemOf(of.Err))
	case of.Reply != nil:
		p.event("done", newChatJSON(of.Reply))
	default:
		p.event("done", newChatJSON(&services.ChatReply{
			ThreadID: of.SessionID, Model: of.Model, Finish: of.Finish, Turn: services.Turn{
				SessionID: of.SessionID, Turn: session.Turn{ID: of.TurnID},
			},
		}))
	}
}

type stopIn struct {
	ThreadID string `path:"thread_id" doc:"The session"`
	Body     *struct {
		TurnID *string `json:"turn_id,omitempty" doc:"Only the answer of this turn; else the one that runs on arrival"`
	}
}

// stoppedJSON says which answer ends.
type stoppedJSON struct {
	ThreadID string     `json:"thread_id"`
	TurnID   *uuid.UUID `json:"turn_id" nullable:"true" doc:"Whose answer ends; null where none was being made"`
}

func (s stoppedJSON) existedBefore() bool { return s.TurnID == nil }

func (a *surface) stop(ctx context.Context, in *stopIn) (out stoppedJSON, err error) {
	if err := a.inThread(ctx, in.ThreadID); err != nil {
		return out, err
	}
	out.ThreadID = in.ThreadID
	turn := uuid.Nil
	if in.Body.TurnID != nil {
		if turn = namedTurn(in.Body.TurnID); turn == uuid.Nil {
			return out, invalid("turn_id", "must be the id of a turn")
		}
	}
	stopped, err := a.cfg.Running.StopAnswer(ctx, in.ThreadID, turn)
	if errors.Is(err, services.ErrNotRunning) {
		return out, nil
	}
	out.TurnID = &stopped
	return out, err
}
