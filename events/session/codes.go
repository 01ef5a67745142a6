package session

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
