package respond

import (
	"errors"
	"slices"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/problems"
)

// Refuse returns a problem with one of OpenAI's codes. Its texts name members, and never hold a value that the client
// sent.
func Refuse(class problems.Class, param, code, message string) *problems.Problem {
	return &problems.Problem{Class: class, Code: code, Field: param, Detail: message}
}

func refuse(code, param, message string) *problems.Problem {
	return Refuse(problems.Invalid, param, code, message)
}

// Refusals that name no member of their own.
var (
	ErrResponseNotFound = Refuse(problems.NotFound, "", "", "There is no such response.")
	ErrPrevious         = refuse("previous_response_not_found", "previous_response_id",
		"There is no response with the id in 'previous_response_id'.")
	ErrConversation = Refuse(problems.NotFound, "", "", "There is no conversation with the id in 'conversation'.")
	ErrTwoHistories = refuse("mutually_exclusive_parameters", "",
		"'conversation' and 'previous_response_id' exclude each other: send one of them.")
	ErrTooLong = refuse("context_length_exceeded", "input",
		"The input and its history are longer than the model's context: set 'truncation' to 'auto', or send less.")
)

// Absent reports whether an error says that something is not there for the caller, and not that nobody could tell.
func Absent(err error) bool {
	p := Refusal(err)
	if p == nil && err != nil {
		p = problems.Of(err)
	}
	return p != nil && slices.Contains([]problems.Class{problems.NotFound, problems.Gone, problems.Invalid}, p.Class)
}

// Refusal returns what a client is told of an error of services.Responder, or nil if that has no words of its own.
func Refusal(err error) *problems.Problem {
	for _, r := range []struct {
		err error
		*problems.Problem
	}{
		{services.ErrNoResponse, ErrResponseNotFound}, {services.ErrNoPrevious, ErrPrevious},
		{services.ErrNoConversation, ErrConversation}, {services.ErrPromptTooLong, ErrTooLong}, // by whose count it be
		{services.ErrTooManyAnswers, Refuse(problems.RateLimited, "", "rate_limit_exceeded",
			"Too many responses run in the background: wait for one to end.")},
		{services.ErrNoSummaries, refuse("unsupported_value", "",
			"No model is configured that summarises: the server needs TURNLEDGER_SUMMARY_URL.")},
		{services.ErrNoInput, refuse("missing_required_parameter", "input", "'input' is required.")},
		{services.ErrUnanswered, refuse("invalid_value", "previous_response_id",
			"The response in 'previous_response_id' has no answer yet: wait for it, or send its request again.")},
		{decide.ErrTurnPending, refuse("conversation_locked", "conversation",
			"Another response is being made in the conversation: wait, or leave out the header X-Turnledger-On-Pending.")},
		{decide.ErrForkTooDeep, refuse("invalid_value", "previous_response_id",
			"The response has too many branches behind it: start a new conversation.")},
	} {
		if errors.Is(err, r.err) {
			return r.Problem
		}
	}
	return nil
}
