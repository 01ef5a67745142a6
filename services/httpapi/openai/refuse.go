package openai

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
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
)

// apiError is an error in OpenAI's form.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// bad returns a problem of what a request says.
func bad(param, code, message string) *problems.Problem {
	return respond.Refuse(problems.Invalid, param, code, message)
}

// missing returns a problem of what there is not.
func missing(param, code, message string) *problems.Problem {
	return respond.Refuse(problems.NotFound, param, code, message)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// noConversation is the problem of every conversation that there is not, or not for this caller.
func noConversation() *problems.Problem {
	return missing("", "", "There is no conversation of this id.")
}

// forms are the statuses and types of problems, by their classes.
var forms = map[problems.Class]struct {
	status int
	kind   string
}{
	problems.Malformed:       {http.StatusBadRequest, invalidRequest},
	problems.Invalid:         {http.StatusBadRequest, invalidRequest},
	problems.Unauthenticated: {http.StatusUnauthorized, invalidRequest},
	problems.Forbidden:       {http.StatusForbidden, invalidRequest},
	problems.NotFound:        {http.StatusNotFound, invalidRequest},
	problems.Gone:            {http.StatusNotFound, invalidRequest},
	problems.WrongMethod:     {http.StatusMethodNotAllowed, invalidRequest},
	problems.Conflict:        {http.StatusConflict, invalidRequest},
	problems.TooLarge:        {http.StatusRequestEntityTooLarge, invalidRequest},
	problems.WrongEncoding:   {http.StatusUnsupportedMediaType, invalidRequest},
	problems.RateLimited:     {http.StatusTooManyRequests, tooManyCalls},
	problems.ModelBusy:       {http.StatusTooManyRequests, tooManyCalls},
	problems.ModelFailed:     {http.StatusBadGateway, serverError},
	problems.ModelRefused:    {http.StatusBadGateway, serverError},
	problems.Unavailable:     {http.StatusServiceUnavailable, serverError},
	problems.Internal:        {http.StatusInternalServerError, serverError},
}

// renamed are the codes of the contract that OpenAI has other names for, or none.
var renamed = map[string]string{
	problems.CodeMalformed: "", problems.CodeInvalid: codeValue, problems.CodeNotFound: "unknown_url",
	problems.CodeForbidden: "insufficient_permissions", "unauthenticated": "invalid_api_key",
	"method_not_allowed": "method_not_supported", "rate_limited": codeTooOften,
}

const codeTooOften = "rate_limit_exceeded"

// problemOf returns the problem of an error, with OpenAI's code.
func problemOf(err error) *problems.Problem {
	if p := respond.Refusal(err); p != nil {
		return p
	}
	p := *problems.Of(err)
	code, other := renamed[p.Code]
	switch {
	case p.Code == session.CodeSessionNotFound, p.Code == session.CodeSessionErased:
		return noConversation()
	case p.Class == problems.ModelBusy:
		p.Code, p.After = codeTooOften, max(p.After, time.Second)
	case other:
		p.Code = code
	}
	return &p
}

// errorOf returns a problem in OpenAI's form.
func errorOf(p *problems.Problem) *apiError {
	return &apiError{p.Sentence(), forms[p.Class].kind, optional(p.Field), optional(p.Code)}
}

// safeText returns what a log may hold of an error: nothing that a client sent.
func safeText(err error) string {
	if p := problemOf(err); forms[p.Class].status < http.StatusInternalServerError {
		return p.Sentence()
	}
	return wire.SafeText(err, problems.SafeWords()...)
}

// refuse answers with an error. Headers say whether and when the same request may come again.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	p, h := problemOf(err), w.Header()
	if errors.Is(err, wire.ErrNoRoute) {
		p = noCall(r)
	}
	setRequestID(h)
	switch {
	case p.Class == problems.Unauthenticated:
		h["Www-Authenticate"] = []string{"Bearer"}
	case p.Class == problems.Unavailable, forms[p.Class].kind == tooManyCalls:
		h["X-Should-Retry"] = []string{"true"}
	}
	if p.After > 0 {
		h["Retry-After"] = []string{strconv.Itoa(p.RetryAfter())}
	}
	if !p.Retry {
		h["X-Should-Retry"] = []string{"false"}
	}
	wire.WriteJSON(w, forms[p.Class].status, map[string]*apiError{"error": errorOf(p)})
}

// setRequestID sets the id of an answer, by which a client may speak of it.
func setRequestID(h http.Header) {
	if h["X-Request-Id"] == nil {
		h["X-Request-Id"] = []string{"req_" + strings.ReplaceAll(uuid.NewString(), "-", "")}
	}
}
