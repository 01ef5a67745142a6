// Package turntest makes the facts of a turn that most tests need: a question and an answer, and nothing else.
package turntest

import "github.com/turnledger/turnledger/events"

// Started returns the start of a turn.
func Started(session, request, question string) *events.TurnStarted {
	return &events.TurnStarted{TurnID: events.TurnID(session, request), SessionID: session, RequestID: request,
		Question: events.Question{QuestionNeutral: question}}
}

// Finalized returns the answer of a turn.
func Finalized(session, request, answer string) *events.TurnFinalized {
	return &events.TurnFinalized{TurnID: events.TurnID(session, request), SessionID: session,
		Answer: events.Answer{AnswerNeutral: answer}}
}

// Recorded returns a whole turn.
func Recorded(session, request, question, answer string) *events.TurnRecorded {
	return &events.TurnRecorded{TurnID: events.TurnID(session, request), SessionID: session, RequestID: request,
		Question: events.Question{QuestionNeutral: question}, Answer: events.Answer{AnswerNeutral: answer}}
}

// Turn returns the start and the answer of a turn.
func Turn(session, request, question, answer string) []events.Fact {
	return []events.Fact{Started(session, request, question), Finalized(session, request, answer)}
}
