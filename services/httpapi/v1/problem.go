package v1

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Codes that this package itself gives (CONTRACT §2); the others are conversation's.
const (
	codeMalformed          = "malformed"
	codeUnauthenticated    = "unauthenticated"
	codeForbidden          = "forbidden"
	codeNotFound           = "not_found"
	codeMethodNotAllowed   = "method_not_allowed"
	codeTooLarge           = "body_too_large"
	codeInvalid            = "invalid_argument"
	codeInternal           = "internal"
	codeLogUnavailable     = "log_unavailable"
	codeAuditUnavailable   = "audit_unavailable"
	codePositionNotReached = "position_not_reached"
	codeModelFailed        = "model_failed"
	codeRateLimited        = "rate_limited"
	codeViewUnavailable    = "projection_unavailable"
	codeNotFed             = "projection_not_fed"
	codeRebuildRunning     = "rebuild_running"
	codeNotEmpty           = "log_not_empty"
	codeStreamRefused      = "stream_change_refused"
	codeAuthUnavailable    = "auth_unavailable"
	codeOverloaded         = "overloaded"
)

// kinds says of each code its status and its title.
var kinds = map[string]struct {
	status int
	title  string
}{
	codeMalformed:                    {http.StatusBadRequest, "The body can't be read"},
	codeUnauthenticated:              {http.StatusUnauthorized, "Who are you?"},
	codeForbidden:                    {http.StatusForbidden, "Not allowed"},
	codeNotFound:                     {http.StatusNotFound, "There is no such call"},
	conversation.CodeSessionNotFound: {http.StatusNotFound, "There is no such session"},
	codeMethodNotAllowed:             {http.StatusMethodNotAllowed, "The call has another method"},
	conversation.CodeTurnNotStarted:  {http.StatusNotFound, "The turn was never started"},
	conversation.CodeTurnNotFound:    {http.StatusNotFound, "There is no such turn"},
	conversation.CodeLinkedElsewhere: {http.StatusConflict, "The session belongs to another identity"},
	conversation.CodeTurnMismatch:    {http.StatusConflict, "The request is another turn's"},
	conversation.CodeTurnRedacted:    {http.StatusConflict, "The turn is redacted"},
	conversation.CodeTurnReplaced:    {http.StatusConflict, "The turn was corrected"},
	conversation.CodeTurnPending:     {http.StatusConflict, "The turn has no answer yet"},
	conversation.CodeRequestIDInUse:  {http.StatusConflict, "The request id is in use"},
	conversation.CodeSessionErased:   {http.StatusGone, "The session was erased"},
	codeNotFed:                       {http.StatusConflict, "Another process feeds the projection"},
	codeRebuildRunning:               {http.StatusConflict, "One rebuild at a time"},
	codeNotEmpty:                     {http.StatusConflict, "The log is not empty"},
	codeStreamRefused:                {http.StatusConflict, "The streams can't become that"},
	codeTooLarge:                     {http.StatusRequestEntityTooLarge, "Too large"},
	codeInvalid:                      {http.StatusUnprocessableEntity, "The request is not valid"},
	codeInternal:                     {http.StatusInternalServerError, "Something is wrong here"},
	codeLogUnavailable:               {http.StatusServiceUnavailable, "The log does not answer"},
	codeAuditUnavailable:             {http.StatusServiceUnavailable, "The audit tables do not answer"},
	codeRateLimited:                  {http.StatusTooManyRequests, "Too many requests"},
	codeModelFailed:                  {http.StatusBadGateway, "The model did not answer"},
	codePositionNotReached:           {http.StatusServiceUnavailable, "Not there yet"},
	codeAuthUnavailable:              {http.StatusServiceUnavailable, "Tokens can't be checked"},
	codeOverloaded:                   {http.StatusServiceUnavailable, "Too much at once"},
	codeViewUnavailable:              {http.StatusServiceUnavailable, "A view does not answer"},
}

// problem is an RFC 9457 answer. It holds nothing of what the client sent but names
// of fields.
type problem struct {
	Type   string         `json:"type" doc:"urn:turnledger:problem: and the code" example:"urn:turnledger:problem:turn_not_started"`
	Title  string         `json:"title" doc:"What kind of problem it is; the same for each code"`
	Status int            `json:"status" example:"404"`
	Detail string         `json:"detail" doc:"What is wrong, and what to do"`
	Code   string         `json:"code" doc:"Stable; what programs go by" example:"turn_not_started"`
	Errors []problemField `json:"errors,omitempty" doc:"The fields that are wrong"`
	// Current helps whoever lost a race of corrections.
	Current *currentVersion `json:"current,omitempty" doc:"With turn_replaced: the version that stands"`
	cause   error
	// after is when the same request may come again; 0 where nothing is known.
	after time.Duration
}

type currentVersion struct {
	TurnID        string `json:"turn_id"`
	RecordVersion int    `json:"record_version" example:"2"`
}

type problemField struct {
	Field  string `json:"field" example:"request_id"`
	Detail string `json:"detail" doc:"What is wrong with it, never its value"`
}

func newProblem(code, detail string) *problem {
	k := kinds[code]
	return &problem{
		Type: "urn:turnledger:problem:" + code, Title: k.title, Status: k.status, Detail: detail, Code: code,
	}
}

func (p *problem) Error() string { return p.Detail }
func (p *problem) Unwrap() error { return p.cause }

// write answers with the problem. Headers tell a client when to come back, or how to say who it is.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	if p.Status == http.StatusUnauthorized {
		h["Www-Authenticate"] = []string{"Bearer"}
	}
	after := p.after
	if p.Status == http.StatusServiceUnavailable {
		after = max(after, time.Second)
	}
	if after > 0 {
		h["Retry-After"] = []string{strconv.Itoa(int(math.Ceil(after.Seconds())))}
	}
	h["Content-Type"] = []string{"application/problem+json"}
	wire.WriteJSON(w, p.Status, p)
}

// fieldErrors are all that is wrong with the fields of a request.
type fieldErrors []conversation.Invalid

func (f fieldErrors) Error() string { return f[0].Error() }

func (f fieldErrors) problem() *problem {
	p := newProblem(codeInvalid, f[0].Error())
	if n := len(f) - 1; n > 0 {
		p.Detail += " (and " + strconv.Itoa(n) + " more)"
	}
	for _, e := range f {
		p.Errors = append(p.Errors, problemField{e.Field, e.Why})
	}
	return p
}
