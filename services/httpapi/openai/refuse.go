package openai

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	"github.com/turnledger/turnledger/services/httpapi/reach"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Types of errors.
const (
	invalidRequest = "invalid_request_error"
	tooManyCalls   = "rate_limit_error"
	serverError    = "server_error"
)

// Codes of errors.
const (
	codeAboveMaximum = "array_above_max_length"
	codeEmptyArray   = "empty_array"
	codeMissing      = "missing_required_parameter"
	codeType         = "invalid_type"
	codeValue        = "invalid_value"
	codeTaken        = "item_already_in_conversation"
	codeBelow        = "integer_below_min_value"
	codeAbove        = "integer_above_max_value"
	codeManyKeys     = "object_above_max_properties"
	codeUnavailable  = "log_unavailable"
)

// apiError is an error in OpenAI's form. It names members of the request, and never holds their values.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`

	status int
	// after is the least time until the same request may be sent again; 0 if it is not known. final: the same request
	// is refused again.
	after time.Duration
	final bool
}

func (e *apiError) Error() string { return e.Message }

// refusal returns an error of type invalid_request_error. An empty param or code is null.
func refusal(status int, param, code, message string) *apiError {
	return &apiError{
		Message: message, Type: invalidRequest, Param: optional(param), Code: optional(code), status: status,
	}
}

// bad returns an error of status 400.
func bad(param, code, message string) *apiError {
	return refusal(http.StatusBadRequest, param, code, message)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// noConversation is the error for every conversation that there is not, or not for this caller.
func noConversation() *apiError {
	return refusal(http.StatusNotFound, "", "", "There is no conversation of this id.")
}

// statuses are the errors of the ports and of wire. The first row that an error matches decides; without a message it
// is the text of the row's error.
var statuses = []struct {
	err     error
	status  int
	kind    string
	code    string
	message string
}{
	{access.ErrUnauthenticated, http.StatusUnauthorized, invalidRequest, "invalid_api_key", ""},
	{access.ErrKeyEnded, http.StatusUnauthorized, invalidRequest, "invalid_api_key", ""},
	{access.ErrTokenEnded, http.StatusUnauthorized, invalidRequest, "invalid_api_key", ""},
	{access.ErrNoKeys, http.StatusServiceUnavailable, serverError, "auth_unavailable", ""},
	{wire.ErrForeign, http.StatusForbidden, invalidRequest, "insufficient_permissions", ""},
	{wire.ErrNoScope, http.StatusForbidden, invalidRequest, "insufficient_permissions", ""},
	{wire.ErrBound, http.StatusForbidden, invalidRequest, "insufficient_permissions", ""},
	{reach.ErrOtherIdentity, http.StatusForbidden, invalidRequest, "insufficient_permissions", ""},
	{wire.ErrNoRoute, http.StatusNotFound, invalidRequest, "unknown_url", ""},
	{wire.ErrMethod, http.StatusMethodNotAllowed, invalidRequest, "method_not_supported", ""},
	{wire.ErrQuery, http.StatusBadRequest, invalidRequest, "", ""},
	{wire.ErrBody, http.StatusBadRequest, invalidRequest, "", ""},
	{wire.ErrPacked, http.StatusBadRequest, invalidRequest, "", ""},
	{wire.ErrEncoding, http.StatusUnsupportedMediaType, invalidRequest, "unsupported_encoding", ""},
	{wire.ErrOverloaded, http.StatusServiceUnavailable, serverError, "overloaded", ""},
	{reach.ErrNoSession, http.StatusNotFound, invalidRequest, "", "There is no conversation of this id."},
	{conversation.ErrSessionNotFound, http.StatusNotFound, invalidRequest, "",
		"There is no conversation of this id."},
	{conversation.ErrSessionErased, http.StatusNotFound, invalidRequest, "",
		"There is no conversation of this id."},
	{conversation.ErrTurnInherited, http.StatusConflict, invalidRequest, conversation.CodeTurnInherited, ""},
	{jetlog.ErrTooLarge, http.StatusRequestEntityTooLarge, invalidRequest, "body_too_large",
		"An item is too large for the log: send shorter texts."},
	{jetlog.ErrNoWrites, http.StatusServiceUnavailable, serverError, codeUnavailable,
		"The log takes no writes at the moment: /readyz says more."},
	{jetlog.ErrUnavailable, http.StatusServiceUnavailable, serverError, codeUnavailable, noAnswer},
	{jetlog.ErrClosed, http.StatusServiceUnavailable, serverError, codeUnavailable, noAnswer},
	{jetlog.ErrStream, http.StatusServiceUnavailable, serverError, codeUnavailable, noAnswer},
	{services.ErrBehind, http.StatusServiceUnavailable, serverError, "audit_unavailable",
		"The list of conversations is behind the log: try again."},
	{projections.ErrUnavailable, http.StatusServiceUnavailable, serverError, "audit_unavailable",
		"The tables that list conversations do not answer, or there are none: set TURNLEDGER_POSTGRES_URL."},
	{services.ErrModelFailed, http.StatusBadGateway, serverError, modelFailed, "The model did not answer."},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, serverError, codeUnavailable, noAnswer},
	{context.Canceled, http.StatusServiceUnavailable, serverError, codeUnavailable, noAnswer},
}

const modelFailed = "model_failed"

const noAnswer = "The log did not answer; the same request again finds out whether it was recorded."

// errorOf returns an error in OpenAI's form. Of an unknown error it says nothing.
func errorOf(err error) *apiError {
	if own, ok := errors.AsType[*apiError](err); ok {
		return own
	}
	if errors.Is(err, services.ErrPromptTooLong) { // by our count, or by the endpoint's
		err = respond.ErrTooLong
	}
	if refused, ok := errors.AsType[*respond.Refusal](err); ok {
		return refusal(refused.Status, refused.Param, refused.Code, refused.Message)
	}
	if scopes, ok := errors.AsType[*wire.MissingScopes](err); ok {
		return refusal(http.StatusForbidden, "", "insufficient_permissions",
			"The key lacks the scope "+strings.Join(scopes.Scopes.Names(), ", ")+".")
	}
	if role, ok := errors.AsType[*wire.OtherRole](err); ok {
		return refusal(http.StatusNotFound, "", "unknown_url", role.Error())
	}
	if large, ok := errors.AsType[*wire.TooLarge](err); ok {
		return refusal(http.StatusRequestEntityTooLarge, "", "body_too_large", large.Error())
	}
	if held, ok := errors.AsType[*wire.Suspended](err); ok {
		return &apiError{
			Message: held.Why, Type: serverError, Code: optional(codeUnavailable),
			status: http.StatusServiceUnavailable,
		}
	}
	if often, ok := errors.AsType[*reach.TooOften](err); ok {
		return &apiError{Message: often.Error(), Type: tooManyCalls, Code: optional("rate_limit_exceeded"),
			status: http.StatusTooManyRequests, after: often.Wait}
	}
	if wrong, ok := errors.AsType[*conversation.Invalid](err); ok {
		return bad(wrong.Field, codeValue, wrong.Error())
	}
	if refused, ok := errors.AsType[*services.ModelRefusal](err); ok {
		return refusedByModel(refused)
	}
	for _, row := range statuses {
		if errors.Is(err, row.err) {
			out := &apiError{Message: row.message, Type: row.kind, Code: optional(row.code), status: row.status}
			if out.Message == "" {
				out.Message = row.err.Error()
			}
			return out
		}
	}
	return &apiError{
		Message: "Something is wrong here; the server's log has it.", Type: serverError, Code: optional("internal"),
		status: http.StatusInternalServerError,
	}
}

// refusedByModel returns the error for a refusal of the model's endpoint. One of too many calls is the caller's to wait
// for; one of the call itself is final.
func refusedByModel(r *services.ModelRefusal) *apiError {
	e := &apiError{
		Message: fmt.Sprintf("The model's endpoint answered %d.", r.Status), Type: serverError,
		Code: optional(modelFailed), status: http.StatusBadGateway, after: r.After, final: !r.Passing(),
	}
	if r.Status == http.StatusTooManyRequests {
		e.Type, e.Code, e.status = tooManyCalls, optional("rate_limit_exceeded"), r.Status
	}
	return e
}

// safeText returns what a log may hold of an error: nothing that a client sent.
func safeText(err error) string {
	if e := errorOf(err); e.status < http.StatusInternalServerError {
		return e.Message
	}
	return reach.Words(err)
}

// refuse answers with an error. Headers say whether and when the same request may come again.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := refusedAs(r, err)
	h := w.Header()
	setRequestID(h)
	switch e.status {
	case http.StatusUnauthorized:
		h["Www-Authenticate"] = []string{"Bearer"}
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h["X-Should-Retry"] = []string{"true"}
		e.after = max(e.after, time.Second)
	}
	if e.after > 0 {
		h["Retry-After"] = []string{strconv.Itoa(int(math.Ceil(e.after.Seconds())))}
	}
	if e.final || e.status < http.StatusInternalServerError && e.status != http.StatusTooManyRequests {
		h["X-Should-Retry"] = []string{"false"}
	}
	wire.WriteJSON(w, e.status, map[string]*apiError{"error": e})
}

// setRequestID sets the id of an answer, by which a client may speak of it.
func setRequestID(h http.Header) {
	if h["X-Request-Id"] == nil {
		h["X-Request-Id"] = []string{"req_" + strings.ReplaceAll(uuid.NewString(), "-", "")}
	}
}
