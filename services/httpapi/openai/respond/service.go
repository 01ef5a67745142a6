package respond

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// Log reads an event.
type Log interface {
	At(ctx context.Context, at events.Position) (events.Recorded, bool, error)
	Partitions() int
}

// Config of a Service.
type Config struct {
	// Ports write and read, whatever the roles of the process.
	services.Ports

	Log     Log
	Answers services.Answerer
	Model   services.Model
	// Count counts the tokens of a text, for models that do not tell their usage.
	Count func(text string) int
	// Context is how many tokens the model takes, with those of its answer that a request bounds; 0 if that is not
	// known.
	Context int
	IDs     items.Minter
	// SessionOf returns the session of a turn that was pruned, as it was noted then, or "".
	SessionOf func(ctx context.Context, turn uuid.UUID) (string, error)
}

// Service answers requests for responses. Safe for concurrent use.
type Service struct{ cfg Config }

// New makes a service; it does no I/O.
func New(cfg Config) *Service {
	cfg.Ports = cfg.WithDefaults()
	if cfg.SessionOf == nil {
		cfg.SessionOf = func(context.Context, uuid.UUID) (string, error) { return "", nil }
	}
	return &Service{cfg}
}

// Caller is who makes a call.
type Caller struct {
	// Identity that the caller is bound to, or "".
	Identity, SourceHash string
	// May returns services.ErrNoSession if the caller may not know of a session, and another error if that can't be
	// told.
	May func(ctx context.Context, sessionID string) error
}

// Ask asks for a response.
type Ask struct {
	Request
	Caller

	Call services.Call
	// RequestID names the request; the same one is never recorded twice.
	RequestID string
	OnPending services.OnPending
	// Stream, where not nil, gets the events of the response while it is made.
	Stream *Stream
}

// asked is what the log keeps of a request beside its input: the settings of the fact that brings the input.
type asked struct {
	// Request is never nil: it marks the settings of a request.
	Request      Settings `json:"request"`
	Conversation bool     `json:"conversation,omitempty"`
	Previous     string   `json:"previous_response_id,omitempty"`
}

// told is what the log keeps of an answer beside its items: the settings of the fact that brings it.
type told struct {
	// Model is the name that the response has from its first event on. AnsweredBy is what the endpoint calls the model
	// that answered, if it tells.
	Model      string             `json:"model"`
	AnsweredBy string             `json:"answered_by,omitempty"`
	Usage      conversation.Usage `json:"usage"`
	Finish     services.Finish    `json:"finish_reason,omitempty"`
}

// Create answers a request. The response is returned once its answer is in the log; if the client has gone, the answer
// is recorded all the same. Errors: *problems.Problem, those of the ports, and services.ErrModelFailed, after which
// the input stands in the log.
func (s *Service) Create(ctx context.Context, a Ask) (Response, error) {
	if !a.Store {
		return s.unstored(ctx, a)
	}
	st, err := s.record(ctx, a)
	if err != nil {
		return nil, err
	}
	w := &work{Service: s, step: st, ask: a}
	if a.Stream != nil {
		a.Stream.id, a.Stream.include = st.mint(s.cfg.IDs), a.Include
		a.Stream.Begin(st.outline(s.cfg.Model.Name()).running())
	}
	turn, repeated, err := s.cfg.Answers.Do(ctx, services.Task{
		SessionID: st.session, Key: st.key(), OnPending: a.OnPending, Before: a.before, Work: w,
	}, func(p services.AnswerPiece) {
		if a.Stream != nil {
			a.Stream.Piece(p)
		}
	})
	if err != nil {
		if a.Stream != nil && modelFailed(err) {
			a.Stream.End(st.outline(s.cfg.Model.Name()).failed(err))
		}
		if errors.Is(err, conversation.ErrTurnRedacted) {
			err = ErrResponseNotFound
		}
		return nil, err
	}
	out, err := s.response(ctx, st, &turn.Turn, a.Include)
	if err != nil {
		return nil, err
	}
	if a.Stream != nil {
		if repeated {
			a.Stream.Items(out)
		}
		a.Stream.End(out)
	}
	return out, nil
}

// step is where a response stands in the log: the fact that brought its input.
type step struct {
	items.Step
	session   string
	createdAt time.Time
	// extension is the id under which the answer extends the turn, or "" if the answer finalizes it.
	extension string
	// place of the turn.
	place     uint64
	duplicate bool
	asked     asked
	// first is the sequence of the first event that the step's call appended; 0 if neither the step's event nor the
	// prune that took it from the log tells.
	first uint64
}

// key names the step to all processes.
func (st step) key() uuid.UUID {
	if st.extension == "" {
		return st.TurnID
	}
	return uuid.NewSHA1(st.TurnID, []byte(st.extension))
}

// mint returns the ids of the items of the step's answer.
func (st step) mint(ids items.Minter) mint {
	return func(kind string, index int) string {
		return ids.Item(kind, st.session, items.Address{
			Position: st.Position, Answer: true, Message: outputMessages + index,
		})
	}
}

// outputMessages is the first number of a message of an answer. The ids of such messages are made of the place of their
// request, since they are told before the answer has a place.
const outputMessages = 0x8000

func (st step) outline(model string) Outline {
	o := Outline{
		ID: items.ResponseID(st.Step), Model: model, CreatedAt: st.createdAt, Previous: st.asked.Previous, Store: true,
		Settings: st.asked.Request,
	}
	if st.asked.Conversation {
		o.Conversation = st.session
	}
	return o
}

// Get returns a response.
func (s *Service) Get(ctx context.Context, id string, who Caller, with message.Includes) (Response, error) {
	st, found, err := s.find(ctx, id, who, ErrResponseNotFound)
	if err != nil {
		return nil, err
	}
	return s.response(ctx, st, found.Turn, with)
}

var errNoFact = errors.New("the input of a response is not where it was recorded")
