package respond

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// unstored answers a request that is not to be recorded: its history is used, and nothing is left of it.
func (s *Service) unstored(ctx context.Context, a Ask) (Response, error) {
	req, err := s.history(ctx, a)
	if err == nil && len(req.Append) == 0 {
		err = s.hasHistory(ctx, req)
	}
	if err != nil {
		return nil, err
	}
	var tokens int64
	p, err := s.prompt(ctx, req, a, &tokens)
	if err != nil {
		return nil, err
	}
	p.Conversation = a.Conversation
	id, more := uuid.New(), uuid.New()
	o := Outline{
		ID: "resp_" + hex.EncodeToString(id[:]) + hex.EncodeToString(more[:8]), Model: s.cfg.Model.Name(),
		CreatedAt: s.cfg.Now(), Conversation: a.Conversation, Previous: a.Previous, Settings: a.Settings,
	}
	ids := func(kind string, index int) string {
		of := uuid.NewSHA1(id, []byte(strconv.Itoa(index)))
		return items.Prefix(kind) + hex.EncodeToString(of[:]) + hex.EncodeToString(more[:8])
	}
	if a.Stream != nil {
		a.Stream.id, a.Stream.include = ids, a.Include
		a.Stream.Begin(o.running())
	}
	hear := func(p services.AnswerPiece) {
		if a.Stream != nil {
			a.Stream.Piece(p)
		}
	}
	answer, err := s.cfg.Model.Answer(ctx, p, hear)
	if err != nil {
		if a.Stream != nil {
			a.Stream.End(o.failed(err))
		}
		return nil, fmt.Errorf("%w: %w", services.ErrModelFailed, err)
	}
	answer = answer.Whole(hear)
	made := output(answer, ids)
	for i, one := range made {
		made[i] = one.Shown(a.Include)
	}
	out := o.answered(ended{
		at: s.cfg.Now(), finish: answer.Finish, usage: s.usage(answer, tokens), output: made,
	})
	if a.Stream != nil {
		a.Stream.End(out)
	}
	return out, nil
}

// hasHistory refuses a request without an input whose history has nothing to answer either.
func (s *Service) hasHistory(ctx context.Context, req services.ContextRequest) error {
	built, err := s.built(ctx, req)
	if err == nil && built.HistoryMessages == 0 {
		err = errNoInput()
	}
	return err
}

// history returns the request for the prompt of a request that is not recorded.
func (s *Service) history(ctx context.Context, a Ask) (services.ContextRequest, error) {
	req := s.contextRequest(a)
	input := a.Input
	switch {
	case a.Missing != nil:
		return req, a.Missing
	case a.Conversation != "":
		if err := a.inReach(ctx); err != nil {
			return req, err
		}
		reading, err := s.cfg.Sessions.Read(ctx, a.newest(a.Conversation))
		if err != nil {
			return req, err
		}
		if !reading.State.Found() || reading.State.Erased != 0 {
			return req, ErrConversation
		}
		req.SessionID, input = a.Conversation, s.fresh(a, reading, math.MaxUint64)
	case a.Previous != "":
		st, found, err := s.previous(ctx, a)
		if err != nil {
			return req, err
		}
		end, answered := st.answerAt(found.Turn)
		if !answered {
			return req, ErrPrevious
		}
		if input, err = s.freshBehind(ctx, a, st, end); err != nil {
			return req, err
		}
		req.SessionID, req.AsOf = st.session, &services.AsOf{Position: &end}
	default:
		req.SessionID = "none." + strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	return a.after(req, input), nil
}

// after returns the request for a prompt whose history an input follows.
func (a Ask) after(req services.ContextRequest, input []message.Item) services.ContextRequest {
	for _, i := range input {
		raw := i.Message()
		if sent, has := a.Sent[string(raw)]; has {
			raw = sent
		}
		req.Append = append(req.Append, raw)
	}
	return req
}

// fits refuses an input that is too long with its history, before anything is recorded. req asks for the history.
func (s *Service) fits(ctx context.Context, a Ask, req services.ContextRequest, input []message.Item) error {
	if req.MaxPrompt == 0 {
		return nil
	}
	_, err := s.built(ctx, a.after(req, input))
	return err
}

// InputTokens counts the tokens of a request's prompt.
func (s *Service) InputTokens(ctx context.Context, a Ask) (int64, error) {
	req, err := s.history(ctx, a)
	if err != nil {
		return 0, err
	}
	var tokens int64
	req.MaxPrompt = 0
	_, err = s.prompt(ctx, req, a, &tokens)
	return tokens, err
}
