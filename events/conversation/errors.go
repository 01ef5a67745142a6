package conversation

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// The codes of refusals, and further reasons of anomalies.
const (
	CodeTurnNotStarted  = "turn_not_started"
	CodeTurnNotFound    = "turn_not_found"
	CodeLinkedElsewhere = "session_linked_elsewhere"
	CodeTurnMismatch    = "turn_mismatch"
	CodeTurnRedacted    = "turn_redacted"
	CodeTurnReplaced    = "turn_replaced"
	CodeTurnPending     = "turn_pending"
	CodeTurnFinalized   = "turn_finalized"
	CodeRequestIDInUse  = "request_id_in_use"
	CodeSessionErased   = "session_erased"
	CodeSessionNotFound = "session_not_found"
	CodeSessionExists   = "session_exists"
	CodeForkTooDeep     = "fork_too_deep"
	CodeTurnInherited   = "turn_inherited"
	CodeMessageNotFound = "message_not_found"

	CodeSecondStart = "second_start"
	CodeSecondFinal = "second_final"
	// CodeSecondExtension is the reason of an extension with the id of another one of the turn.
	CodeSecondExtension = "second_extension"
	// CodeTurnPruned is the reason of an event that repeats one that stood before messages were taken out of its turn,
	// CodeWrongTombstones of a prune that does not say of the turn what the log says.
	CodeTurnPruned      = "turn_pruned"
	CodeWrongTombstones = "wrong_tombstones"
	// CodeWrongPosition is the reason of an event that claims to rest on an event after it.
	CodeWrongPosition = "wrong_position"
	// CodeDescriptionReplaced is the reason of a description that was decided before the one that stands;
	// CodeSecondDescription of one that contradicts it.
	CodeDescriptionReplaced = "description_replaced"
	CodeSecondDescription   = "second_description"
	// CodeSecondFork is the reason of a fork of a session that has begun already, or of a second mark of a request.
	CodeSecondFork = "second_fork"
	// CodeSecondSummary is the reason of a summary with the request of another one that stands or was void,
	// CodeSummaryGap of one that leaves out a turn.
	CodeSecondSummary = "second_summary"
	CodeSummaryGap    = "summary_gap"
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
	ErrTurnNotStarted = refusal(CodeTurnNotStarted,
		"the turn was never started in this session: start it first, with the same request_id")
	ErrTurnNotFound    = refusal(CodeTurnNotFound, "the session has no turn of this id")
	ErrLinkedElsewhere = refusal(CodeLinkedElsewhere,
		"the session belongs to another identity: use a new session_id; the attempt was recorded")
	// ErrRootErased refuses to link a branch that lives on alone: there is nothing left whose identity it could have.
	ErrRootErased = refusal(CodeLinkedElsewhere,
		"the session is a branch and has the identity of the session it comes from, which was erased: "+
			"use a new session_id")
	ErrTurnMismatch = refusal(CodeTurnMismatch,
		"the request_id does not compute to this turn_id: send the request_id that started the turn, or none")
	ErrTurnRedacted    = refusal(CodeTurnRedacted, "the turn is redacted and takes no more writes")
	ErrTurnReplaced    = refusal(CodeTurnReplaced, "the turn was replaced by a correction: correct the current version")
	ErrTurnPending     = refusal(CodeTurnPending, "the turn has no answer yet: finalize it first")
	ErrTurnFinalized   = refusal(CodeTurnFinalized, "the turn has its answer: its question can't be extended any more")
	ErrMessageNotFound = refusal(CodeMessageNotFound, "the turn has no such message")
	ErrRequestIDInUse  = refusal(CodeRequestIDInUse,
		"the request_id belongs to another write of this session: use a new one")
	ErrSessionNotFound = refusal(CodeSessionNotFound, "the log has no session of this id")
	ErrSessionExists   = refusal(CodeSessionExists,
		"the log has a session of this id: choose another session_id, or none")
	ErrForkTooDeep = refusal(CodeForkTooDeep,
		"the branch would share turns of more than 32 sessions: start a new session")
	ErrTurnInherited = refusal(CodeTurnInherited,
		"the turn belongs to the session that this one was forked from: write to it there")
	errVoidByRedaction = refusal(CodeTurnRedacted,
		"the summary of this request is void since a turn is redacted: summarise again with a new request_id")
	errVoid = refusal(CodeTurnReplaced,
		"the summary of this request is void since its turns have changed: summarise again with a new request_id")
	ErrSessionErased = refusal(CodeSessionErased, "the session was erased and takes no more writes")
)

func refusal(code, detail string) *Refusal { return &Refusal{Code: code, Detail: detail} }

// pendingRefusal is ErrTurnPending for a new turn while the turn t is being answered; it names t.
func pendingRefusal(t *Turn) error {
	return &Refusal{Code: CodeTurnPending, Detail: fmt.Sprintf(
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
