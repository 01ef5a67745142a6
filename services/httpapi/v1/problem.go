package v1

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/reach"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Codes that this package itself gives (docs/contract.md#errors); the others are conversation's.
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

// errLetters: the store of a view's dead letters did not answer, or not as it should.
var errLetters = errors.New("the store of the dead letters does not answer")

// problemOf is the one table from errors to problems. What is unknown is "internal" and says nothing to the client.
func problemOf(err error) *problem {
	var own *problem
	if errors.As(err, &own) {
		return own
	}
	p := refusalOf(err)
	p.cause = err
	return p
}

// told are errors of the ports and of wire, with what a client is told of them; an empty detail is the error's own
// text.
var told = []struct {
	err          error
	code, detail string
}{
	{wire.ErrForeign, codeForbidden, ""},
	{wire.ErrNoScope, codeForbidden, ""},
	{wire.ErrBound, codeForbidden, ""},
	{wire.ErrNoRoute, codeNotFound, "there is no such call: /docs lists them"},
	{wire.ErrMethod, codeMethodNotAllowed, ""},
	{wire.ErrBody, codeMalformed, ""},
	{wire.ErrOverloaded, codeOverloaded, ""},
	{reach.ErrNoSession, conversation.CodeSessionNotFound, ""},
	{access.ErrKeyEnded, codeUnauthenticated, ""},
	{access.ErrTokenEnded, codeUnauthenticated, ""},
	{access.ErrNoKeys, codeAuthUnavailable, ""},
	{access.ErrUnauthenticated, codeUnauthenticated, ""},
	{services.ErrPositionNotReached, codePositionNotReached, "the log does not hold the position yet: " +
		"ask again in a moment"},
	{services.ErrBehind, codeAuditUnavailable, "the audit tables have not applied yet what the log holds: turnledger " +
		"projections list shows how far they are; try again"},
	{services.ErrModelFailed, codeModelFailed, "the model did not answer; the turn is kept and pending, and the same " +
		"request again asks the model again"},
	{services.ErrNoReceipt, codeNotFound, "there is no such receipt: DELETE of a session or an identity gives one, " +
		"and the position of a redaction is one"},
	{errLetters, codeViewUnavailable, "the view's store does not answer: turnledger projections list tells how it " +
		"stands; try again"},
	{projections.ErrNoProjection, codeNotFound, "there is no such projection: GET /v1/projections lists them"},
	{projections.ErrNoRebuild, codeNotFound, "no rebuild of the projection runs in this process: GET /v1/projections " +
		"shows which do; ask the process that was asked for it"},
	{projections.ErrNotFed, codeNotFed, "this process does not feed the projection: ask the one that does, by --url " +
		"or TURNLEDGER_URL (serve --roles audit feeds the audit, --roles recent the recent view in Redis)"},
	{projections.ErrRebuilding, codeRebuildRunning, "the projection is being rebuilt or verified already: GET " +
		"/v1/projections shows how far"},
	{projections.ErrNotYet, codeAuditUnavailable, "what is too old stays for now: the audit is being rebuilt or " +
		"verified, or has not applied it yet, or the memory outside has not deleted it (turnledger projections " +
		"list); it is tried again each minute"},
	// The audit is the one view whose store answers requests by itself.
	{projections.ErrUnavailable, codeAuditUnavailable, "the audit tables do not answer, or there are none: set " +
		"TURNLEDGER_POSTGRES_URL, or try again"},
	{jetlog.ErrNotEmpty, codeNotEmpty, ""},
}

func refusalOf(err error) *problem {
	var refusal *conversation.Refusal
	var wrong *conversation.Invalid
	var fields fieldErrors
	for _, t := range told {
		if errors.Is(err, t.err) {
			return newProblem(t.code, cmp.Or(t.detail, t.err.Error()))
		}
	}
	switch {
	case errors.Is(err, wire.ErrQuery):
		return fieldErrors{{Field: "query", Why: "is not percent-encoded as it should be"}}.problem()
	case errors.As(err, &fields):
		return fields.problem()
	case errors.As(err, &wrong):
		return fieldErrors{*wrong}.problem()
	case errors.Is(err, jetlog.ErrTooLarge):
		return newProblem(codeTooLarge, "the turn is too large for the log: send shorter texts or messages")
	case errors.Is(err, jetlog.ErrRefused):
		return newProblem(codeStreamRefused, err.Error())
	case errors.Is(err, ErrBackup):
		return newProblem(codeInvalid, err.Error())
	case errors.Is(err, jetlog.ErrNoWrites):
		return newProblem(codeLogUnavailable, "the log takes no writes, since its disk is full or failing; /readyz "+
			"tells more, and the same request later finds out")
	// Before refusals: one that could not be kept for the audit is not given yet.
	case errors.Is(err, jetlog.ErrUnavailable), errors.Is(err, jetlog.ErrClosed), errors.Is(err, jetlog.ErrStream),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return newProblem(codeLogUnavailable, "the log did not answer; if it was a write, it may or may not have "+
			"happened: the same request again finds out")
	case errors.As(err, &refusal) && kinds[refusal.Code].status != 0:
		return refused(refusal)
	default:
		return refusalOfWire(err)
	}
}

// refusalOfWire is the part of the table for errors of wire and reach that say more than that they are.
func refusalOfWire(err error) *problem {
	var scopes *wire.MissingScopes
	var role *wire.OtherRole
	var body *wire.TooLarge
	var held *wire.Held
	var often *reach.TooOften
	switch {
	case errors.As(err, &scopes):
		return newProblem(codeForbidden, scopes.Error())
	case errors.As(err, &role):
		return newProblem(codeNotFound, role.Error())
	case errors.As(err, &body):
		return newProblem(codeTooLarge, body.Error())
	case errors.As(err, &held):
		return newProblem(codeLogUnavailable, held.Error())
	case errors.As(err, &often):
		p := newProblem(codeRateLimited, often.Error())
		p.after = often.Wait
		return p
	default:
		return newProblem(codeInternal, "an unexpected error; the server's log has it")
	}
}

func refused(r *conversation.Refusal) *problem {
	p := newProblem(r.Code, r.Detail)
	if v := r.Current; v != nil {
		p.Current = &currentVersion{v.TurnID.String(), v.Number}
	}
	return p
}

// tellable returns of an error what can't hold a text: the code of a problem, our own words, those of the log and
// of the chat about its model, and what wire.Tell returns of all others.
func tellable(err error) string {
	var p *problem
	if errors.As(err, &p) {
		if p.cause == nil {
			return p.Code
		}
		return p.Code + ": " + tellable(p.cause)
	}
	for _, own := range []error{services.ErrModelFailed, jetlog.ErrUnavailable, jetlog.ErrStream, jetlog.ErrTooLarge} {
		if errors.Is(err, own) {
			return err.Error()
		}
	}
	return wire.Tell(err)
}
