package answer

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/items"
)

// Respond implements services.Responder.
func (s *Service) Respond(
	ctx context.Context, a services.StepAsk, to services.Listener,
) (out services.Answered, err error) {
	if a.Background {
		who := access.CallOf(ctx).Caller.Name
		if !s.background.enter(who) {
			return out, services.ErrTooManyAnswers
		}
		defer s.background.leave(who)
	}
	if !a.Store {
		return s.unstored(ctx, ask{StepAsk: a}, to)
	}
	missed, leave := s.calls.enter(ctx, a.Call.Body)
	defer leave()
	asking := ask{StepAsk: a, missed: missed}
	var st step
	if a.Completion != nil {
		st, err = s.recordCompletion(ctx, &asking)
	} else {
		st, err = s.recordInput(ctx, asking)
	}
	if err != nil {
		return out, err
	}
	w := &input{Service: s, at: st, ask: asking}
	heard := s.listen(to)
	defer heard.leave()
	done, err := s.do(ctx, task{
		session: st.session, key: st.key(), onPending: a.OnPending, own: a.RequestID, at: st.Position.Seq,
		work: w, ends: !a.Background && s.endsWith(a.OnDisconnect, a.Completion != nil), keeps: a.Streams,
		named: a.Completion == nil,
	}, heard)
	if err == nil {
		// The caller may have gone, and others watch.
		reading, end := context.WithTimeout(context.WithoutCancel(ctx), recordDeadline)
		out, err = s.recorded(reading, st, &done.turn.Turn)
		end()
	}
	if errors.Is(err, decide.ErrTurnRedacted) {
		err = services.ErrNoResponse
	}
	if err != nil {
		out = services.Answered{Step: s.told(w.at, s.cfg.Model.Name()), Err: err}
	} else if !done.begun {
		done.begun = true
		heard.Begun(out.Step)
	}
	if done.begun {
		out.Reply = &services.ChatReply{
			ThreadID: st.session, Turn: done.turn, Model: out.Model, Finish: out.Finish, Repeated: done.repeated,
		}
		heard.Ended(out)
	}
	return out, err
}

// unstored answers a request that is not to be recorded: its history is used, and nothing is left of it.
func (s *Service) unstored(ctx context.Context, a ask, to services.Listener) (out services.Answered, err error) {
	var built services.Context
	if a.Completion == nil {
		built, err = s.unrecorded(ctx, a, true)
	}
	if err == nil && a.Completion == nil && len(a.Input) == 0 && built.HistoryMessages == 0 {
		err = services.ErrNoInput
	}
	if err != nil {
		return out, err
	}
	id, more := uuid.New(), uuid.New()
	suffix := hex.EncodeToString(more[:8])
	out.Step = services.Step{
		ResponseID: "resp_" + hex.EncodeToString(id[:]) + suffix, Model: s.cfg.Model.Name(), CreatedAt: s.cfg.Now(),
		Conversation: a.Conversation, Previous: a.Previous, Settings: a.Settings,
		Mint: func(kind, own string, index int) string {
			if own != "" { // nothing here would know the item by another one
				return own
			}
			of := uuid.NewSHA1(id, []byte(strconv.Itoa(index)))
			return items.Prefix(kind) + hex.EncodeToString(of[:]) + suffix
		},
	}
	p, used := promptOf(&built, a.Options), s.tokens(a, &built)
	if p.Conversation = a.Conversation; a.Completion != nil {
		p, used = s.exact(a)
		out.Step.Recorded = services.RecordedNone
	}
	answer, err := s.aside(ctx, p, out.Step, to)
	if out.Err = err; err == nil {
		out.At, out.Finish, out.Usage = s.cfg.Now(), answer.Finish, s.usage(answer, used)
		out.Output = s.cfg.Output(answer, out.Mint)
	}
	to.Ended(out)
	return out, err
}

// unrecorded returns the prompt of a request as it would be if the request were recorded. bounded: it must fit the
// model's context.
func (s *Service) unrecorded(ctx context.Context, a ask, bounded bool) (built services.Context, err error) {
	if a.Missing != nil {
		return built, a.Missing
	}
	a.Store = false
	at, err := s.place(ctx, a)
	if err != nil {
		return built, err
	}
	req := s.promptAt(a, at)
	if !bounded {
		req.MaxPrompt = 0
	}
	return s.cfg.Contexts.Build(ctx, req)
}

// CountTokens implements services.Responder.
func (s *Service) CountTokens(ctx context.Context, a services.StepAsk) (int64, error) {
	built, err := s.unrecorded(ctx, ask{StepAsk: a}, false)
	return s.tokens(ask{StepAsk: a}, &built), err
}

// input is the work on the input of a request.
type input struct {
	*Service

	at   step
	ask  ask
	read bool
	// used are the tokens of the prompt, for a model that does not count them.
	used int64
}

func (w *input) as(attempt string) { w.at.Attempt = attempt }

func (w *input) step(*services.Turn) services.Step { return w.told(w.at, w.cfg.Model.Name()) }

// start finds the step, which stands in the log already; after the first call its turn is looked up, without its texts.
func (w *input) start(ctx context.Context) (services.Turn, error) {
	if !w.read && !w.at.duplicate {
		w.read = true
		t := session.Turn{ID: w.at.TurnID, Place: w.at.place, Started: w.at.Position.Seq}
		if w.at.extension != "" {
			t.Status = session.Finalized
		}
		return services.Turn{Turn: t, SessionID: w.at.session}, nil
	}
	found, err := w.cfg.Lookup.FindTurn(ctx, w.at.session, w.at.TurnID)
	if isGone(err) {
		err = services.ErrNoResponse
	}
	if err != nil {
		return services.Turn{}, err
	}
	return services.Turn{Turn: *found.Turn, SessionID: w.at.session, Duplicate: true}, nil
}

func (w *input) answered(t *session.Turn) bool {
	if w.at.extension == "" {
		return t.Status != session.Pending
	}
	_, has := w.at.answerAt(t)
	return has || t.Status != session.Finalized
}

func (w *input) prompt(ctx context.Context, turn uuid.UUID, known uint64) (services.Prompt, error) {
	c := w.ask.Completion
	if c != nil && c.History == services.HistoryClient {
		p, used := w.exact(w.ask)
		w.used, p.Settings = used, w.keptSent(w.ask, events.Position{
			Partition: w.at.Position.Partition, Seq: max(known, w.at.Position.Seq),
		})
		return p, nil
	}
	req := w.contextRequest(w.ask)
	req.Truncate = req.Truncate || c != nil
	req.SessionID, req.TurnID, req.KnownSeq, req.Sent = w.at.session, turn, known, w.ask.Sent
	built, err := w.cfg.Contexts.Build(ctx, req)
	w.used = w.tokens(w.ask, &built)
	if err != nil {
		return services.Prompt{}, err
	}
	p := w.ask.withSystem(promptOf(&built, w.ask.Options), w.cfg.Model.Format())
	p.Settings = w.keptOf(ctx, w.ask, req, built)
	return p, nil
}

func (*input) piece(p services.AnswerPiece) (services.AnswerPiece, bool) { return p, true }

// empty: a model that has nothing to add to the output of a tool has answered, and so has one that was cut short.
func (w *input) empty(answer services.ModelAnswer) bool {
	return len(answer.Parts) == 0 && !answer.Cut() && !w.ask.hasOutput()
}

func (w *input) record(
	ctx context.Context, turn uuid.UUID, answer services.ModelAnswer,
) (services.Turn, error) {
	settings := encode(told{
		Model: w.cfg.Model.Name(), AnsweredBy: answer.Model, Usage: w.usage(answer, w.used), Finish: answer.Finish,
		Pieces: answer.Pieces, Attempt: w.at.Attempt, askedWith: askedWith{answer.Prompt},
	})
	output := w.cfg.Output(answer, w.told(w.at, "").Mint)
	if w.ask.Completion != nil { // its client is told no ids
		output = withoutIDs(output)
	}
	list := messages(output)
	if w.at.extension == "" {
		return w.cfg.Turns.FinalizeTurn(ctx, decide.Finalize{
			SessionID: w.at.session, TurnID: turn, FinishReason: reason(answer), Usage: answer.Usage,
			Settings: settings, Answer: events.Answer{AnswerNeutral: answer.Text(), AnswerMessages: encode(list)},
		})
	}
	whole, err := w.wholeUsage(ctx, answer.Usage)
	if err != nil {
		return services.Turn{}, err
	}
	return w.cfg.Turns.ExtendTurn(ctx, decide.Extend{
		SessionID: w.at.session, TurnID: turn, ExtensionID: w.at.extension, FinishReason: reason(answer), Usage: whole,
		Settings: settings, Extension: events.Extension{
			Half: events.HalfAnswer, AnswerNeutral: answer.Text(), Messages: encode(list),
		},
	})
}

// wholeUsage adds what the turn has used before, since the metadata of a turn speaks of all its answers.
func (w *input) wholeUsage(ctx context.Context, used *session.Usage) (*session.Usage, error) {
	if used == nil {
		return nil, nil //nolint:nilnil // the model did not tell
	}
	reading, err := w.with(ctx, services.Ask{SessionID: w.at.session, Shown: 1, Own: true}, w.at.TurnID)
	if err != nil {
		return nil, err
	}
	whole := *used
	if t := reading.State.Turn(w.at.TurnID); t != nil {
		if before := session.UsageOf(t.Metadata()); before != nil {
			whole = whole.Plus(*before)
		}
	}
	return &whole, nil
}

// usage returns what a model used, counted if it does not tell.
func (s *Service) usage(answer services.ModelAnswer, input int64) session.Usage {
	if answer.Usage != nil {
		return *answer.Usage
	}
	u := session.Usage{Input: input}
	for _, p := range answer.Parts {
		u.Output += int64(s.cfg.Count(p.Text) + s.cfg.Count(p.Name))
	}
	return u
}

// contextRequest returns the request for a prompt: everything, unless the request asks for less.
func (s *Service) contextRequest(a ask) services.ContextRequest {
	off := time.Duration(0)
	req := services.ContextRequest{
		Compacted: s.uncompacted(a.Identity), SystemPrompt: a.Instructions, MaxMessages: math.MaxInt, IdleTimeout: &off, IncludePending: true, Through: true,
		Format: s.cfg.Model.Format(), Truncate: a.Truncate,
	}
	if req.MaxPrompt = s.room(a.Options.MaxTokens, 0); req.MaxPrompt > 0 {
		req.MaxPrompt = max(1, req.MaxPrompt-s.toolTokens(a))
	}
	return req
}

// room returns how many tokens a prompt may have; 0: any number. It leaves what the request or the deployment lets the
// answer have, and where neither bounds the answer, otherwise.
func (s *Service) room(answer int64, otherwise int) int {
	if s.cfg.Context == 0 {
		return 0
	}
	answer = min(cmp.Or(answer, s.cfg.MaxAnswer, int64(otherwise)), int64(s.cfg.Context))
	return max(1, s.cfg.Context-int(answer)) // 0 would be no bound
}

// promptAt returns the request for the prompt of what is to be recorded at a place.
func (s *Service) promptAt(a ask, at place) services.ContextRequest {
	req := s.contextRequest(a)
	if req.SessionID = at.session; at.end.Seq > 0 {
		req.AsOf = &services.AsOf{Position: &at.end}
	}
	for _, raw := range messages(at.rest) {
		if sent, has := a.Sent[string(raw)]; has {
			raw = sent
		}
		req.Append = append(req.Append, raw)
	}
	return req
}

func messages(all []message.Item) (out []json.RawMessage) {
	for _, i := range all {
		out = append(out, i.Message())
	}
	return out
}

// fits refuses an input that is too long with its history, before anything is recorded.
func (s *Service) fits(ctx context.Context, a ask, at place) error {
	req := s.promptAt(a, at)
	if req.MaxPrompt == 0 {
		return nil
	}
	_, err := s.cfg.Contexts.Build(ctx, req)
	return err
}

// toolTokens counts the tokens of the tools that a request offers.
func (s *Service) toolTokens(a ask) (n int) {
	for _, t := range a.Options.Tools {
		n += s.cfg.Count(string(t.Raw))
	}
	return n
}

// tokens counts those of a prompt and of the tools that a request offers.
func (s *Service) tokens(a ask, built *services.Context) int64 {
	return int64(built.Tokens + s.toolTokens(a))
}

func encode(v any) json.RawMessage {
	raw, _ := events.JSON(v) // never fails: v is made of JSON and texts
	return raw
}
