package decide

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/session"
)

// Refusal is a command that the state of its session does not allow.
type Refusal struct {
	Code   string
	Detail string
	// Current is the turn's current version. Only a refusal with CodeTurnReplaced has it.
	Current *Version
	// Origin is where an inherited turn stands. Only a refusal with CodeTurnInherited has it.
	Origin *TurnOrigin
}

// TurnOrigin names a turn of another session.
type TurnOrigin struct {
	SessionID string
	TurnID    uuid.UUID
}

// Version names a version of a turn.
type Version struct {
	TurnID uuid.UUID
	Number int
}

func (r *Refusal) Error() string { return r.Detail }

// Is matches refusals by code.
func (r *Refusal) Is(target error) bool {
	other, ok := target.(*Refusal)
	return ok && other.Code == r.Code
}

// The refusals; their text says what to do.
var (
	ErrTurnNotStarted = refusal(session.CodeTurnNotStarted,
		"the turn was never started in this session: start it first, with the same request_id")
	ErrTurnNotFound    = refusal(session.CodeTurnNotFound, "the session has no turn of this id")
	ErrLinkedElsewhere = refusal(session.CodeLinkedElsewhere,
		"the session belongs to another identity: use a new session_id; the attempt was recorded")
	// ErrRootErased refuses to link a branch that lives on alone: there is nothing left whose identity it could have.
	ErrRootErased = refusal(session.CodeLinkedElsewhere,
		"the session is a branch and has the identity of the session it comes from, which was erased: "+
			"use a new session_id")
	ErrTurnMismatch = refusal(session.CodeTurnMismatch,
		"the request_id does not compute to this turn_id: send the request_id that started the turn, or none")
	ErrTurnRedacted = refusal(session.CodeTurnRedacted, "the turn is redacted and takes no more writes")
	ErrTurnReplaced = refusal(session.CodeTurnReplaced,
		"the turn was replaced by a correction: correct the current version")
	ErrTurnPending   = refusal(session.CodeTurnPending, "the turn has no answer yet: finalize it first")
	ErrTurnFinalized = refusal(session.CodeTurnFinalized,
		"the turn has its answer: its question can't be extended any more")
	ErrMessageNotFound = refusal(session.CodeMessageNotFound, "the turn has no such message")
	ErrRequestIDInUse  = refusal(session.CodeRequestIDInUse,
		"the request_id belongs to another write of this session: use a new one")
	ErrSessionNotFound = refusal(session.CodeSessionNotFound, "the log has no session of this id")
	ErrSessionExists   = refusal(session.CodeSessionExists,
		"the log has a session of this id: choose another session_id, or none")
	ErrForkTooDeep = refusal(session.CodeForkTooDeep,
		"the branch would share turns of more than 32 sessions: start a new session")
	ErrTurnInherited = refusal(session.CodeTurnInherited,
		"the turn belongs to the session that this one was forked from: write to it there")
	errVoidByRedaction = refusal(session.CodeTurnRedacted,
		"the summary of this request is void since a turn is redacted: summarise again with a new request_id")
	errVoid = refusal(session.CodeTurnReplaced,
		"the summary of this request is void since its turns have changed: summarise again with a new request_id")
	ErrSessionErased = refusal(session.CodeSessionErased, "the session was erased and takes no more writes")
)

func refusal(code, detail string) *Refusal { return &Refusal{Code: code, Detail: detail} }

// pendingRefusal is ErrTurnPending for a new turn while the turn t is being answered; it names t.
func pendingRefusal(t *session.Turn) error {
	return &Refusal{Code: session.CodeTurnPending, Detail: fmt.Sprintf(
		"turn %s, begun %s, has no answer yet: send this again when it has one, "+
			"or now with on_pending enqueue or interrupt",
		t.ID, t.CreatedAt.UTC().Format(time.RFC3339))}
}

// ErrInvalid matches each command that is wrong whatever the session holds.
var ErrInvalid = errors.New("invalid argument")

// Invalid names the field of a command and what is wrong with it, never its value.
type Invalid struct {
	Field string
	Why   string
}

func (e *Invalid) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Why) }

// Is matches ErrInvalid.
func (e *Invalid) Is(target error) bool { return target == ErrInvalid }

// refusals are those of what the state of a turn refuses, by their codes.
var refusals = map[string]*Refusal{
	session.CodeTurnNotStarted: ErrTurnNotStarted, session.CodeTurnNotFound: ErrTurnNotFound,
	session.CodeTurnPending: ErrTurnPending, session.CodeTurnFinalized: ErrTurnFinalized,
	session.CodeTurnRedacted: ErrTurnRedacted, session.CodeTurnReplaced: ErrTurnReplaced,
}

// refusalOf returns the refusal of a code. That of a turn which was replaced names the turn's current version.
func refusalOf(s *session.State, turn uuid.UUID, code string) *Refusal {
	if code != session.CodeTurnReplaced {
		return refusals[code]
	}
	current := s.Current(s.Turn(turn))
	r := *ErrTurnReplaced
	r.Current = &Version{current.ID, current.Version}
	return &r
}
