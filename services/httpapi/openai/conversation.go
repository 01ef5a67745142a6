package openai

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
)

// conversationJSON is a session as clients see it.
type conversationJSON struct {
	ID        string            `json:"id"`
	Object    string            `json:"object"`
	CreatedAt int64             `json:"created_at"`
	Metadata  map[string]string `json:"metadata"`
}

func conversationOf(id string, h session.Head) conversationJSON {
	return conversationJSON{id, "conversation", h.CreatedAt.Unix(), h.Description().Object()}
}

func (s *surface) createConversation(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	body, raw, err := s.body(r)
	if err != nil {
		return nil, err
	}
	metadata, err := body.metadata()
	if err != nil {
		return nil, err
	}
	call := s.beginningOf(ctx, r, raw)
	id := s.newConversationID(call)
	given, err := s.given(ctx, body, "")
	if err != nil {
		return nil, err
	}
	c := services.NewSession{
		AddMessages: decide.AddMessages{
			SessionID: id, RequestID: uuid.NewString(), Messages: items.AllAdded(given), Now: s.cfg.Now(),
		},
		IdentityID: bound(ctx), SourceHash: s.cfg.Source(ctx), Metadata: metadata,
		Kind: events.KindConversation, Drawn: call.Key == "",
	}
	done, err := s.cfg.Messages.BeginSession(ctx, c, call)
	if err != nil {
		return nil, err
	}
	noteSession(ctx, done.SessionID)
	notePosition(ctx, done.Position)
	if done.Duplicate {
		return s.conversation(ctx, done.SessionID)
	}
	return conversationOf(done.SessionID, done.Head), nil
}

// newConversationID draws an id. A call with a key has the same id for ever.
func (s *surface) newConversationID(call services.Call) string {
	if call.Key != "" {
		return items.ConversationPrefix + s.digest("conversation", call.Key)
	}
	return items.NewConversationID()
}

func (s *surface) getConversation(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	return s.conversation(ctx, r.PathValue("conversation_id"))
}

func (s *surface) conversation(ctx context.Context, id string) (any, error) {
	reading, err := s.read(ctx, services.Ask{SessionID: id, Shown: 1, Own: true})
	if err != nil {
		return nil, err
	}
	return conversationOf(id, reading.State.Head()), nil
}

// read reads a session that there is.
func (s *surface) read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	if decide.ValidIDs("conversation_id", ask.SessionID) != nil {
		return services.Reading{}, noConversation()
	}
	noteSession(ctx, ask.SessionID)
	reading, err := s.cfg.Sessions.Read(ctx, ask)
	if err != nil {
		return reading, err
	}
	if !reading.State.Found() || reading.State.Erased != 0 {
		return reading, noConversation()
	}
	notePosition(ctx, reading.Position)
	wire.CallOf(ctx).SetAttribute("source", string(reading.Source))
	return reading, nil
}

func (s *surface) updateConversation(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	id := r.PathValue("conversation_id")
	body, sent, err := s.body(r)
	if err != nil {
		return nil, err
	}
	switch raw, given := body[metadataMember]; {
	case !given:
		return nil, bad(metadataMember, codeMissing, "metadata is required.")
	case string(raw) == "null":
		return nil, bad(metadataMember, codeType, "metadata must be an object.")
	}
	metadata, err := body.metadata()
	if err != nil {
		return nil, err
	}
	// A description makes a session exist, so the session is read first.
	if _, err := s.read(ctx, services.Ask{SessionID: id, Shown: 1, Own: true}); err != nil {
		return nil, err
	}
	done, err := s.cfg.SessionWrites.DescribeSession(ctx, decide.Describe{
		SessionID: id, RequestID: s.callOf(ctx, r, sent).Key, Metadata: metadata,
	})
	if wrong, is := errors.AsType[*decide.Invalid](err); is { // all but what the state holds was checked
		return nil, bad(metadataMember, codeManyKeys, wrong.Error())
	}
	if err != nil {
		return nil, err
	}
	notePosition(ctx, done.Position)
	return conversationOf(id, done.Head), nil
}

// deletedJSON says that something is deleted.
type deletedJSON struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// receiptHeader names the receipt of an erasure.
const receiptHeader = "Turnledger-Receipt"

func (s *surface) deleteConversation(ctx context.Context, r *http.Request, h http.Header) (any, error) {
	id, call := r.PathValue("conversation_id"), s.callOf(ctx, r, nil)
	_, err := s.read(ctx, services.Ask{SessionID: id, Shown: 1, Own: true})
	if call.Only = isMissing(err) && named(call); err != nil && !call.Only {
		return nil, err
	}
	receipt, err := s.cfg.Erasures.EraseSession(ctx, id, services.Erasure{Call: call})
	if isNotRepeated(err) {
		err = noConversation()
	}
	if err != nil {
		return nil, err
	}
	h.Set(receiptHeader, receipt)
	return deletedJSON{id, "conversation.deleted", true}, nil
}

// listConversations lists sessions, the one that was active last first. It is an extension of the API.
func (s *surface) listConversations(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	identity, err := services.Across(ctx, "")
	if err != nil {
		return nil, err
	}
	p, err := pagingOf(r)
	if err != nil {
		return nil, err
	}
	page, more, err := s.pageOfConversations(ctx, identity, p)
	if err != nil {
		return nil, err
	}
	return listOf(page, func(c conversationJSON) string { return c.ID }).thenMore(more), nil
}
