package conversation

import (
	"errors"
	"fmt"
)

// Codes of refusals (CONTRACT §2) and reasons of anomalies.
const (
	CodeTurnNotStarted  = "turn_not_started"
	CodeTurnNotFound    = "turn_not_found"
	CodeLinkedElsewhere = "session_linked_elsewhere"
	CodeTurnMismatch    = "turn_mismatch"
	CodeTurnRedacted    = "turn_redacted"
	CodeTurnReplaced    = "turn_replaced"
	CodeTurnPending     = "turn_pending"
	CodeRequestIDInUse  = "request_id_in_use"
	CodeSessionErased   = "session_erased"
	CodeSessionNotFound = "session_not_found"

	CodeSecondStart = "second_start"
	CodeSecondFinal = "second_final"
	// CodeWrongPosition: the event claims to rest on what comes after it.
	CodeWrongPosition = "wrong_position"
)

// Refusal is a command that the state of its session does not allow.
type Refusal struct {
	Code   string
	Detail string
}

func (r *Refusal) Error() string { return r.Detail }

// Is matches refusals by code.
func (r *Refusal) Is(target error) bool {
	other, ok := target.(*Refusal)
	return ok && other.Code == r.Code
}

// The refusals; their text says what to do.
var (
	ErrTurnNotStarted  = &Refusal{CodeTurnNotStarted, "the turn was never started in this session: start it first, with the same request_id"}
	ErrTurnNotFound    = &Refusal{CodeTurnNotFound, "the session has no turn of this id"}
	ErrLinkedElsewhere = &Refusal{CodeLinkedElsewhere, "the session belongs to another identity: use a new session_id; the attempt was recorded"}
	ErrTurnMismatch    = &Refusal{CodeTurnMismatch, "the request_id does not compute to this turn_id: send the request_id that started the turn, or none"}
	ErrTurnRedacted    = &Refusal{CodeTurnRedacted, "the turn is redacted and takes no more writes"}
	ErrTurnReplaced    = &Refusal{CodeTurnReplaced, "the turn was replaced by a correction: correct its replaced_by_turn_id"}
	ErrTurnPending     = &Refusal{CodeTurnPending, "the turn has no answer yet: finalize it first"}
	ErrRequestIDInUse  = &Refusal{CodeRequestIDInUse, "the request_id belongs to another write of this session: use a new one"}
	ErrSessionNotFound = &Refusal{CodeSessionNotFound, "the log has no session of this id"}
	ErrSessionErased   = &Refusal{CodeSessionErased, "the session was erased and takes no more writes"}
)

// ErrInvalid is every command that is wrong whatever the session holds.
var ErrInvalid = errors.New("invalid argument")

// Invalid names the field of a command and what is wrong with it, never its value.
type Invalid struct {
	Field string
	Why   string
}

func (e *Invalid) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Why) }

// Is matches ErrInvalid.
func (e *Invalid) Is(target error) bool { return target == ErrInvalid }
