package openai

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
)

// itemID returns the id of an item.
func itemID(i message.Item) string { return i.ID() }

func (s *surface) createItems(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	id := r.PathValue("conversation_id")
	noteSession(ctx, id)
	with, err := includesOf(r)
	if err != nil {
		return nil, err
	}
	body, raw, err := s.body(r)
	if err != nil {
		return nil, err
	}
	done, err := s.addItems(ctx, id, body, s.callOf(ctx, r, raw))
	if err != nil {
		return nil, err
	}
	notePosition(ctx, done.Position)
	out := s.itemsOf(done)
	wire.CallOf(ctx).SetAttribute("items", len(out))
	return listOf(respond.Shown(out, with), itemID), nil
}

// addItems records the items of a body. A call that was recorded before has its first answer, whatever the conversation
// holds by now.
func (s *surface) addItems(
	ctx context.Context, id string, body members, call services.Call,
) (services.AddedMessages, error) {
	given, err := s.given(ctx, body, id)
	if err != nil {
		if !named(call) {
			return services.AddedMessages{}, err
		}
		call.Only = true // it may name itself: its items have their ids already
		done, failed := s.cfg.Messages.AddMessages(ctx, decide.AddMessages{SessionID: id, Now: s.cfg.Now()}, call)
		if failed != nil {
			return done, err
		}
		return done, nil
	}
	return s.cfg.Items.AddItems(ctx, id, requestID(call), given, call)
}

// requestID returns the id of the requests that a call makes. A call with a key makes the same for ever.
func requestID(call services.Call) string {
	if call.Key != "" {
		return call.Key
	}
	return uuid.NewString()
}

// itemsOf returns the items of added messages, with their ids.
func (s *surface) itemsOf(done services.AddedMessages) (out []message.Item) {
	for _, m := range done.Messages {
		at := items.Address{Position: m.First, Answer: m.Answer, Message: m.Message}
		out = append(out, s.ids.OfMessages(done.SessionID, at, []json.RawMessage{m.JSON})...)
	}
	return out
}

func (s *surface) listItems(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	p, err := pagingOf(r)
	if err != nil {
		return nil, err
	}
	with, err := includesOf(r)
	if err != nil {
		return nil, err
	}
	page, more, err := s.page(ctx, r.PathValue("conversation_id"), p)
	if err != nil {
		return nil, err
	}
	return listOf(respond.Shown(page, with), itemID).thenMore(more), nil
}

func (s *surface) getItem(ctx context.Context, r *http.Request, _ http.Header) (any, error) {
	with, err := includesOf(r)
	if err != nil {
		return nil, err
	}
	i, err := s.item(ctx, r.PathValue("conversation_id"), r.PathValue("item_id"))
	if err != nil {
		return nil, err
	}
	return i.Shown(with), nil
}

// item finds an item of a conversation.
func (s *surface) item(ctx context.Context, conversationID, id string) (out message.Item, err error) {
	err = s.find(ctx, conversationID, id, func(i message.Item, _ *session.Turn, _ string, _ int) error {
		out = i
		return nil
	})
	return out, err
}

// find calls use with an item of a conversation, and with the turn, the session and the partition that it stands in. It
// looks at the place in its id first, then among the newest turns, and then everywhere.
func (s *surface) find(
	ctx context.Context, conversationID, id string,
	use func(i message.Item, t *session.Turn, sessionID string, partition int) error,
) error {
	asks := []services.BesideAsk{{Back: true, Messages: defaultLimit}, {Messages: math.MaxInt}}
	if at, looks := items.Locate(id); looks {
		there := services.BesideAsk{At: at.Position, Answer: at.Answer, Message: at.Message, Messages: 1}
		asks = slices.Insert(asks, 0, there)
	}
	for _, ask := range asks {
		turns, _, err := s.beside(ctx, conversationID, ask)
		if err != nil {
			return err
		}
		for _, t := range turns.Turns {
			for i := range s.walk(t, id, items.Way{}) {
				if i.ID() == id {
					return use(i, t.Turn, t.SessionID, t.Partition)
				}
			}
		}
	}
	return noItem()
}

func noItem() error {
	return missing("item_id", "", "The conversation has no item of the id in the path.")
}

// deleteItem takes an item out of its turn, and out of the log. If it was the only one, the turn is redacted.
func (s *surface) deleteItem(ctx context.Context, r *http.Request, h http.Header) (any, error) {
	id, gone, call := r.PathValue("conversation_id"), r.PathValue("item_id"), s.callOf(ctx, r, nil)
	err := s.find(ctx, id, gone, func(_ message.Item, t *session.Turn, sessionID string, partition int) error {
		err := s.prune(ctx, h, decide.Prune{
			SessionID: id, TurnID: t.ID, Call: call.Name(), Keep: func(m session.Message) json.RawMessage {
				return s.kept(sessionID, partition, m, gone)
			},
		})
		if isGone(err) {
			return noItem()
		}
		return err
	})
	if isMissing(err) {
		err = s.deletedBefore(ctx, h, id, call, err)
	}
	if err != nil {
		return nil, err
	}
	return s.conversation(ctx, id)
}

// deletedBefore answers a call that repeats an earlier one, which has taken something out of a session: the answer's
// header names the receipt of that call. If there was none, it fails with none.
func (s *surface) deletedBefore(
	ctx context.Context, h http.Header, sessionID string, call services.Call, none error,
) error {
	if !named(call) {
		return none
	}
	call.Only = true
	done, err := s.cfg.Messages.AddMessages(ctx, decide.AddMessages{SessionID: sessionID, Now: s.cfg.Now()}, call)
	switch {
	case err == nil:
		h.Set(receiptHeader, done.Position.String())
	case isNotRepeated(err):
		return none
	}
	return err
}

// named reports whether a call says that it may repeat an earlier one.
func named(call services.Call) bool { return call.Key != "" || call.Repeats }

// isNotRepeated reports whether an error says that a call repeats none, or none in a session that there is.
func isNotRepeated(err error) bool {
	return errors.Is(err, services.ErrNotRepeated) || errors.Is(err, decide.ErrSessionNotFound) ||
		errors.Is(err, decide.ErrSessionErased) || errors.Is(err, decide.ErrInvalid)
}

// prune takes messages out of a turn. The answer's header names the receipt.
func (s *surface) prune(ctx context.Context, h http.Header, c decide.Prune) error {
	done, err := s.cfg.Turns.PruneTurn(ctx, c)
	if err == nil {
		h.Set(receiptHeader, done.Position.String())
	}
	return err
}

// kept returns a message of a turn without an item, as it is to stay.
func (s *surface) kept(sessionID string, partition int, m session.Message, gone string) json.RawMessage {
	return s.ids.Kept(sessionID, items.Address{
		Position: events.Position{Partition: partition, Seq: m.Begun},
		Answer:   m.Half == events.HalfAnswer, Message: m.Number,
	}, m.Raw, gone)
}

// isGone reports whether another call has taken out first what this one takes out.
func isGone(err error) bool {
	return errors.Is(err, decide.ErrMessageNotFound) || errors.Is(err, decide.ErrTurnRedacted)
}
