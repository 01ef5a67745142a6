package answer

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// frame is what one process tells another of an answer: one of these.
type frame struct {
	Begun *services.Step `json:"begun,omitempty"`
	Piece *framePiece    `json:"piece,omitempty"`
	End   *frameEnd      `json:"end,omitempty"`
}

// framePiece is a piece. Its text need not be whole characters.
type framePiece struct {
	Part   int               `json:"part"`
	Kind   services.PartKind `json:"kind"`
	Text   []byte            `json:"text,omitempty"`
	CallID string            `json:"call_id,omitempty"`
	Name   string            `json:"name,omitempty"`
	Item   json.RawMessage   `json:"item,omitempty"`
	ID     string            `json:"id,omitempty"`
}

// frameEnd is an end: with an answer, or with an error.
type frameEnd struct {
	Step   services.Step   `json:"step"`
	At     time.Time       `json:"at"`
	Output []message.Item  `json:"output"`
	Finish services.Finish `json:"finish"`
	Usage  session.Usage   `json:"usage"`
	Pieces string          `json:"pieces"`
	Reply  *frameReply     `json:"reply,omitempty"`

	Failed bool `json:"failed,omitempty"`
	// Error is the place of the error among errorsTold, from 1 on; 0 is another one.
	Error   int                    `json:"error,omitempty"`
	Refused *services.ModelRefusal `json:"refused,omitempty"`
}

// frameReply is what those who watch are told of a chat's reply.
type frameReply struct {
	ThreadID     string          `json:"thread_id"`
	TurnID       uuid.UUID       `json:"turn_id"`
	RequestID    string          `json:"request_id"`
	Status       session.Status  `json:"status"`
	Position     events.Position `json:"position"`
	Model        string          `json:"model"`
	HistoryTurns int             `json:"history_turns"`
	Rewritten    string          `json:"rewritten"`
	Repeated     bool            `json:"repeated"`
	Finish       services.Finish `json:"finish"`
}

// errorsTold are the errors that a process tells another by their places here.
var errorsTold = []error{
	services.ErrAnswerLost, errStopping, services.ErrPromptTooLong, decide.ErrTurnRedacted, decide.ErrSessionErased,
	services.ErrNoResponse, jetlog.ErrUnavailable, services.ErrModelFailed,
}

// telling tells another process of an answer.
type telling struct{ send func([]byte) }

var _ services.Listener = telling{}

func (t telling) tell(f frame) {
	raw, _ := json.Marshal(f) // it is made of texts, and JSON that was read
	t.send(raw)
}

// Begun implements services.Listener.
func (t telling) Begun(s services.Step) { t.tell(frame{Begun: &s}) }

// Piece implements services.Listener.
func (t telling) Piece(p services.AnswerPiece) {
	t.tell(frame{Piece: &framePiece{p.Part, p.Kind, []byte(p.Text), p.CallID, p.Name, p.Item, p.ID}})
}

// Ended implements services.Listener. The text of a reply is that of the pieces.
func (t telling) Ended(a services.Answered) {
	f := frameEnd{
		Step: a.Step, At: a.At, Output: a.Output, Finish: a.Finish, Usage: a.Usage, Pieces: a.Pieces,
		Failed: a.Err != nil,
	}
	if r := a.Reply; r != nil {
		f.Reply = &frameReply{
			r.ThreadID, r.Turn.ID, r.Turn.RequestID, r.Turn.Status, r.Turn.Position, r.Model, r.HistoryTurns,
			r.RewrittenQuery, r.Repeated, r.Finish,
		}
	}
	if a.Err != nil {
		f.Error = 1 + slices.IndexFunc(errorsTold, func(e error) bool { return errors.Is(a.Err, e) })
		f.Refused, _ = errors.AsType[*services.ModelRefusal](a.Err)
	}
	t.tell(frame{End: &f})
}

// ended returns the end as the process knows it that made the answer.
func (s *Service) ended(f *frameEnd) services.Answered {
	a := services.Answered{
		Step: s.minting(f.Step), At: f.At, Output: f.Output, Finish: f.Finish, Usage: f.Usage, Pieces: f.Pieces,
	}
	if r := f.Reply; r != nil {
		a.Reply = &services.ChatReply{
			ThreadID: r.ThreadID, Model: r.Model, HistoryTurns: r.HistoryTurns, RewrittenQuery: r.Rewritten,
			Repeated: r.Repeated, Finish: r.Finish, Turn: services.Turn{SessionID: r.ThreadID, Position: r.Position},
		}
		a.Reply.Turn.ID, a.Reply.Turn.RequestID, a.Reply.Turn.Status = r.TurnID, r.RequestID, r.Status
	}
	switch {
	case !f.Failed:
	case f.Refused != nil:
		a.Err = errors.Join(services.ErrModelFailed, f.Refused)
	case f.Error > 0 && f.Error <= len(errorsTold):
		a.Err = errorsTold[f.Error-1]
	default:
		a.Err = services.ErrModelFailed
	}
	return a
}

// minting returns a step with what makes the ids of its answer's items.
func (s *Service) minting(of services.Step) services.Step {
	if of.Asked.Seq > 0 {
		of.Mint = s.mint(of.SessionID, of.Asked)
	}
	return of
}

// mint returns what makes the ids of the items of the answer to the event at a position.
func (s *Service) mint(sessionID string, at events.Position) services.Mint {
	return func(kind, _ string, index int) string {
		return s.cfg.IDs.Item(kind, sessionID, items.Address{
			Position: at, Answer: true, Message: outputMessages + index,
		})
	}
}

// offer lets other processes watch an answer of this one, and stop it, until leave is called.
func (a *answering) offer(ctx context.Context) (leave func()) {
	if a.cfg.Relay == nil {
		return func() {}
	}
	leave, err := a.cfg.Relay.Offer(context.WithoutCancel(ctx), a.key, Offer{
		Serve: func(ctx context.Context, send func([]byte)) { _ = a.to.watch(ctx, telling{send}, stands) },
		Stop:  func() { a.to.stop(errStopped) }, Go: a.background.running.Go,
	})
	if err != nil {
		a.cfg.Logger.Warn("other processes can't watch an answer", "turn_id", a.key, "err", err)
		return func() {}
	}
	return leave
}

// stands says that an answer stands: whoever is told of it elsewhere asks there.
func stands(context.Context) error { return nil }

// mirrors are answers of other processes that are watched here, by the keys of their steps. However many watch one, it
// comes once.
type mirrors struct {
	mu sync.Mutex
	of map[uuid.UUID]*mirror
}

// mirror is an answer that another process makes.
type mirror struct {
	*running

	watched int
	leave   context.CancelFunc
}

// mirrored returns the answer that another process makes to a step, once it is known what it answers. It fails with
// services.ErrNotRunning if none makes one. leave must be called.
func (s *Service) mirrored(ctx context.Context, key uuid.UUID) (m *mirror, leave func(), err error) {
	if s.cfg.Relay == nil {
		return nil, nil, services.ErrNotRunning
	}
	m = s.mirror(ctx, key)
	leave = func() {
		s.mirrors.mu.Lock()
		defer s.mirrors.mu.Unlock()
		if m.watched--; m.watched == 0 {
			m.leave()
			if s.mirrors.of[key] == m {
				delete(s.mirrors.of, key)
			}
		}
	}
	if err := m.known(ctx); err != nil {
		leave()
		return nil, nil, err
	}
	return m, leave, nil
}

// mirror returns the mirror of a step's answer for one more who watches it.
func (s *Service) mirror(ctx context.Context, key uuid.UUID) *mirror {
	s.mirrors.mu.Lock()
	defer s.mirrors.mu.Unlock()
	if m := s.mirrors.of[key]; m != nil && !m.isOver() {
		m.watched++
		return m
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	m := &mirror{&running{left: func() {}}, 1, end}
	s.mirrors.of[key] = m
	s.background.running.Go(func() {
		defer end()
		err := s.cfg.Relay.Attach(ctx, key, func(raw []byte) { s.hear(m.running, raw) })
		if !errors.Is(err, services.ErrNotRunning) {
			err = services.ErrAnswerLost
		}
		m.Ended(services.Answered{Err: err}) // unless it has ended
	})
	return m
}

// hear takes a frame of another process.
func (s *Service) hear(r *running, raw []byte) {
	var f frame
	switch err := json.Unmarshal(raw, &f); {
	case err != nil:
	case f.Begun != nil:
		r.Begun(s.minting(*f.Begun))
	case f.Piece != nil:
		p := f.Piece
		r.Piece(services.AnswerPiece{Part: p.Part, AnswerPart: services.AnswerPart{
			Kind: p.Kind, Text: string(p.Text), CallID: p.CallID, Name: p.Name, Item: p.Item, ID: p.ID,
		}})
	case f.End != nil:
		r.Ended(s.ended(f.End))
	}
}

// mostElsewhere bounds the steps of a session that other processes are asked about.
const mostElsewhere = 16

// elsewhere returns the key and the turn of the answer that other processes make in a session before the others: that
// of a turn, or, for the nil id, of any. Otherwise it is services.ErrNotRunning.
func (s *Service) elsewhere(ctx context.Context, sessionID string, turn uuid.UUID) (key, of uuid.UUID, err error) {
	if s.cfg.Relay == nil {
		return key, of, services.ErrNotRunning
	}
	state, err := s.cfg.States.Session(ctx, sessionID, 0)
	if err != nil {
		return key, of, err
	}
	type candidate struct{ key, turn uuid.UUID }
	var all []candidate
	for _, t := range state.Turns {
		for _, o := range slices.Backward(openOf(t)) {
			if turn == uuid.Nil || t.ID == turn {
				all = append(all, candidate{o.key, t.ID})
			}
		}
	}
	all = all[max(0, len(all)-mostElsewhere):]
	offered := make([]bool, len(all))
	var asking sync.WaitGroup
	for n, c := range all {
		asking.Go(func() { offered[n], _ = s.cfg.Relay.Offered(ctx, c.key) })
	}
	asking.Wait()
	if n := slices.Index(offered, true); n >= 0 {
		return all[n].key, all[n].turn, nil
	}
	return key, of, services.ErrNotRunning
}
