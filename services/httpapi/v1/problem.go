package v1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/reach"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// kind is an error code with the status and the title of its problems.
type kind struct {
	code   string
	status int
	title  string
}

// The kinds of problems (docs/contract.md#errors), besides those of refusals.
var (
	malformed          = kind{"malformed", http.StatusBadRequest, "The body can't be read"}
	unauthenticated    = kind{"unauthenticated", http.StatusUnauthorized, "Who are you?"}
	forbidden          = kind{"forbidden", http.StatusForbidden, "Not allowed"}
	notThere           = kind{"not_found", http.StatusNotFound, "There is no such call"}
	methodNotAllowed   = kind{"method_not_allowed", http.StatusMethodNotAllowed, "The call has another method"}
	notFed             = kind{"projection_not_fed", http.StatusConflict, "Another process feeds the projection"}
	rebuildRunning     = kind{"rebuild_running", http.StatusConflict, "One rebuild at a time"}
	notEmpty           = kind{"log_not_empty", http.StatusConflict, "The log is not empty"}
	streamRefused      = kind{"stream_change_refused", http.StatusConflict, "The streams can't become that"}
	tooLarge           = kind{"body_too_large", http.StatusRequestEntityTooLarge, "Too large"}
	notRead            = kind{"unsupported_encoding", http.StatusUnsupportedMediaType, "The encoding is not read"}
	notValid           = kind{"invalid_argument", http.StatusUnprocessableEntity, "The request is not valid"}
	rateLimited        = kind{"rate_limited", http.StatusTooManyRequests, "Too many requests"}
	internal           = kind{"internal", http.StatusInternalServerError, "Something is wrong here"}
	modelFailed        = kind{"model_failed", http.StatusBadGateway, "The model did not answer"}
	logUnavailable     = kind{"log_unavailable", http.StatusServiceUnavailable, "The log does not answer"}
	auditUnavailable   = kind{"audit_unavailable", http.StatusServiceUnavailable, "The audit tables do not answer"}
	indexUnavailable   = kind{"index_unavailable", http.StatusServiceUnavailable, "There is no index of meanings"}
	positionNotReached = kind{"position_not_reached", http.StatusServiceUnavailable, "Not there yet"}
	authUnavailable    = kind{"auth_unavailable", http.StatusServiceUnavailable, "Tokens can't be checked"}
	overloaded         = kind{"overloaded", http.StatusServiceUnavailable, "Too much at once"}
	viewUnavailable    = kind{"projection_unavailable", http.StatusServiceUnavailable, "A view does not answer"}
	sessionNotFound    = kind{conversation.CodeSessionNotFound, http.StatusNotFound, "There is no such session"}
)

// refusals are the kinds of the problems for a *conversation.Refusal.
var refusals = []kind{
	sessionNotFound,
	{conversation.CodeTurnNotStarted, http.StatusNotFound, "The turn was never started"},
	{conversation.CodeTurnNotFound, http.StatusNotFound, "There is no such turn"},
	{conversation.CodeLinkedElsewhere, http.StatusConflict, "The session belongs to another identity"},
	{conversation.CodeTurnMismatch, http.StatusConflict, "The request is another turn's"},
	{conversation.CodeTurnRedacted, http.StatusConflict, "The turn is redacted"},
	{conversation.CodeTurnReplaced, http.StatusConflict, "The turn was corrected"},
	{conversation.CodeTurnPending, http.StatusConflict, "The turn has no answer yet"},
	{conversation.CodeRequestIDInUse, http.StatusConflict, "The request id is in use"},
	{conversation.CodeSessionExists, http.StatusConflict, "The session exists"},
	{conversation.CodeForkTooDeep, http.StatusConflict, "The branch is too deep"},
	{conversation.CodeTurnInherited, http.StatusConflict, "The turn belongs to another session"},
	{conversation.CodeSessionErased, http.StatusGone, "The session was erased"},
}

// problem is an RFC 9457 answer. It holds nothing of the client's request but names of fields.
type problem struct {
	Type   string         `json:"type" doc:"urn:turnledger:problem: and the code" example:"urn:turnledger:problem:turn_not_started"`
	Title  string         `json:"title" doc:"What kind of problem it is; the same for each code"`
	Status int            `json:"status" example:"404"`
	Detail string         `json:"detail" doc:"What is wrong, and what to do"`
	Code   string         `json:"code" doc:"Stable; what programs go by" example:"turn_not_started"`
	Errors []problemField `json:"errors,omitempty" doc:"The fields that are wrong"`
	// Current helps a client that lost a race of corrections.
	Current *currentVersion `json:"current,omitempty" doc:"With turn_replaced: the version that stands"`
	// Origin helps a client that wrote to an inherited turn.
	Origin *turnOrigin `json:"origin,omitempty" doc:"With turn_inherited: where the turn is written to"`
	cause  error
	// after is the least time until the same request may be sent again; 0 if it is not known.
	after time.Duration
}

type currentVersion struct {
	TurnID        string `json:"turn_id"`
	RecordVersion int    `json:"record_version" example:"2"`
}

type turnOrigin struct {
	SessionID string `json:"session_id"`
	TurnID    string `json:"turn_id"`
}

type problemField struct {
	Field  string `json:"field" example:"request_id"`
	Detail string `json:"detail" doc:"What is wrong with it, never its value"`
}

func newProblem(k kind, detail string) *problem {
	return &problem{
		Type: "urn:turnledger:problem:" + k.code, Title: k.title, Status: k.status, Detail: detail, Code: k.code,
	}
}

func (p *problem) Error() string { return p.Detail }
func (p *problem) Unwrap() error { return p.cause }

// write answers with the problem. Headers tell the client when to try again, or how to authenticate.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	if p.Status == http.StatusUnauthorized {
		h["Www-Authenticate"] = []string{"Bearer"}
	}
	if after := p.retryAfter(); after > 0 {
		h["Retry-After"] = []string{strconv.Itoa(int(math.Ceil(after.Seconds())))}
	}
	h["Content-Type"] = []string{"application/problem+json"}
	wire.WriteJSON(w, p.Status, p)
}

// retryAfter returns when the same request may come again; 0 where that is not known.
func (p *problem) retryAfter() time.Duration {
	if p.Status == http.StatusServiceUnavailable {
		return max(p.after, time.Second)
	}
	return p.after
}

// fieldErrors are all that is wrong with the fields of a request.
type fieldErrors []conversation.Invalid

func (f fieldErrors) Error() string { return f[0].Error() }

// sorted returns the errors by their fields; nil for none.
func (f fieldErrors) sorted() error {
	if f == nil {
		return nil
	}
	slices.SortFunc(f, func(a, b conversation.Invalid) int { return strings.Compare(a.Field, b.Field) })
	return f
}

func (f fieldErrors) problem() *problem {
	p := newProblem(notValid, f[0].Error())
	if n := len(f) - 1; n > 0 {
		p.Detail += " (and " + strconv.Itoa(n) + " more)"
	}
	p.Errors = mapped(f, func(e *conversation.Invalid) problemField { return problemField{e.Field, e.Why} })
	return p
}

// errView: the store of a view that is rebuilt or verified failed, or that of a view's dead letters.
var errView = errors.New("the store of the view does not answer")

// problemOf returns the problem for an error. For an unknown error it is "internal", and says nothing about the error.
func problemOf(err error) *problem {
	if own, ok := errors.AsType[*problem](err); ok {
		return own
	}
	p := refusalOf(err)
	p.cause = err
	return p
}

// is matches errors that wrap a target. The client sees the text of the target.
func is(target error) func(error) error {
	return func(err error) error {
		if errors.Is(err, target) {
			return target
		}
		return nil
	}
}

// verbatim matches errors that wrap a target. The client sees the text of the whole error.
func verbatim(target error) func(error) error {
	return func(err error) error {
		if errors.Is(err, target) {
			return err
		}
		return nil
	}
}

// as matches errors of a type. The client sees their text.
func as[E error](err error) error {
	if found, ok := errors.AsType[E](err); ok {
		return found
	}
	return nil
}

// noAnswer is the detail for errors of a log that did not answer.
const noAnswer = "the log did not answer; if it was a write, it may or may not have happened: " +
	"the same request again finds out"

// problemTable is the table from errors of the ports and of wire to problems. The first row whose match returns an
// error decides the kind and the detail of the answer. A row without a detail answers with the text of the matched
// error. docs/operations.md#when-a-write-is-503 explains the rows of status 503 to operators.
var problemTable = []struct {
	match  func(error) error
	kind   kind
	detail string
}{
	{is(wire.ErrForeign), forbidden, ""},
	{is(wire.ErrNoScope), forbidden, ""},
	{is(wire.ErrBound), forbidden, ""},
	{as[*wire.MissingScopes], forbidden, ""},
	{is(wire.ErrNoRoute), notThere, "there is no such call: /docs lists them"},
	{as[*wire.OtherRole], notThere, ""},
	{is(wire.ErrMethod), methodNotAllowed, ""},
	{is(wire.ErrBody), malformed, ""},
	{is(wire.ErrPacked), malformed, ""},
	{is(wire.ErrEncoding), notRead, ""},
	{as[*wire.TooLarge], tooLarge, ""},
	{is(wire.ErrOverloaded), overloaded, ""},
	{as[*wire.Suspended], logUnavailable, ""},
	{is(reach.ErrNoSession), sessionNotFound, ""},
	{is(reach.ErrOtherIdentity), forbidden, ""},
	{as[*reach.TooOften], rateLimited, ""},
	{is(access.ErrKeyEnded), unauthenticated, ""},
	{is(access.ErrTokenEnded), unauthenticated, ""},
	{is(access.ErrNoKeys), authUnavailable, ""},
	{is(access.ErrUnauthenticated), unauthenticated, ""},
	{is(services.ErrPositionNotReached), positionNotReached,
		"the log does not hold the position yet: ask again in a moment"},
	{is(services.ErrBehind), auditUnavailable, "the audit tables have not applied yet what the log holds: turnledger " +
		"projections list shows how far they are; try again"},
	{is(services.ErrModelFailed), modelFailed, "the model did not answer; the turn is kept and pending, and the same " +
		"request again asks the model again"},
	{is(services.ErrNoReceipt), notThere, "there is no such receipt: DELETE of a session or an identity gives one, " +
		"and the position of a redaction is one"},
	{is(projections.ErrNoDeadLetter), notThere, ""},
	{is(errView), viewUnavailable, "the view's store does not answer: " +
		"turnledger projections list shows how it stands; try again"},
	{is(projections.ErrNotRebuildable), notThere, "the projection can't be rebuilt or verified: " +
		"GET /v1/projections shows which are rebuildable"},
	{is(projections.ErrNoProjection), notThere, "there is no such projection: GET /v1/projections lists them"},
	{is(projections.ErrNoRebuild), notThere, "no rebuild of the projection runs in this process: GET /v1/projections " +
		"shows which do; ask the process that was asked for it"},
	{is(projections.ErrNotFed), notFed, "this process does not feed the projection: ask the one that does, by --url " +
		"or TURNLEDGER_URL (its role has the name of the view: serve --roles audit feeds the audit, --roles recent " +
		"the recent view in Redis)"},
	{is(projections.ErrRebuilding), rebuildRunning, "the projection is being rebuilt or verified already: GET " +
		"/v1/projections shows how far"},
	{is(projections.ErrNotYet), auditUnavailable, "what is too old stays for now: the audit is being rebuilt or " +
		"verified, or has not applied it yet, or the memory outside has not deleted it (turnledger projections " +
		"list); it is tried again each minute"},
	{is(services.ErrNoIndex), indexUnavailable, ""},
	{is(projections.ErrOtherModel), indexUnavailable, ""},
	{is(projections.ErrSomeAnonymous), indexUnavailable, ""},
	{is(projections.ErrEmbedder), indexUnavailable, "the embeddings endpoint does not answer: look at " +
		"TURNLEDGER_EMBED_URL, or search with mode words"},
	{is(services.ErrIndex), indexUnavailable, "the index does not answer: turnledger projections list shows how it " +
		"stands; search with mode words and no cursor, or try again"},
	{is(projections.ErrOutdated), auditUnavailable, "the audit tables lack what this call needs, since they were " +
		"filled with another TURNLEDGER_SEARCH_CONFIG, or beside another log: run turnledger projections rebuild audit"},
	// Requests of other views have marks of their own (ofView).
	{is(projections.ErrUnavailable), auditUnavailable, "the audit tables do not answer, or there are none: set " +
		"TURNLEDGER_POSTGRES_URL, or try again"},
	{is(jetlog.ErrNotEmpty), notEmpty, ""},
	{is(jetlog.ErrTooLarge), tooLarge, "the turn is too large for the log: send shorter texts or messages"},
	{verbatim(jetlog.ErrRefused), streamRefused, ""},
	{verbatim(services.ErrBackup), notValid, ""},
	{is(jetlog.ErrNoWrites), logUnavailable, "the log takes no writes, since it has no room or its disk fails; " +
		"/readyz says more, and the same request later finds out"},
	{is(services.ErrBusy), logUnavailable, "the session gets so many writes at once that this one lost to the " +
		"others each time: the same request again tries again"},
	{is(jetlog.ErrStream), logUnavailable, "the log is not the one that this process opened, or another stream takes " +
		"its events: the server's log says what to do; if it was a write, it may or may not have happened"},
	{is(jetlog.ErrUnavailable), logUnavailable, noAnswer},
	{is(jetlog.ErrClosed), logUnavailable, noAnswer},
	{is(context.DeadlineExceeded), logUnavailable, noAnswer},
	{is(context.Canceled), logUnavailable, noAnswer},
}

func refusalOf(err error) *problem {
	if fields, ok := errors.AsType[fieldErrors](err); ok {
		return fields.problem()
	}
	if wrong, ok := errors.AsType[*conversation.Invalid](err); ok {
		return fieldErrors{*wrong}.problem()
	}
	if errors.Is(err, wire.ErrQuery) {
		return fieldErrors{*invalid("query", "is not percent-encoded as it should be")}.problem()
	}
	for _, t := range problemTable {
		if text := t.match(err); text != nil {
			p := newProblem(t.kind, cmp.Or(t.detail, text.Error()))
			if often, ok := errors.AsType[*reach.TooOften](err); ok {
				p.after = often.Wait
			}
			if refused, ok := errors.AsType[*services.ModelRefusal](err); ok {
				p.after = refused.After
				p.Detail += fmt.Sprintf(" (its endpoint answered %d)", refused.Status)
			}
			return p
		}
	}
	// The table comes first: an error that joins a refusal with an error of the log means that the refusal could not be
	// recorded for the security audit, and is answered as log_unavailable.
	if r, ok := errors.AsType[*conversation.Refusal](err); ok {
		if i := slices.IndexFunc(refusals, func(k kind) bool { return k.code == r.Code }); i >= 0 {
			p := newProblem(refusals[i], r.Detail)
			if v := r.Current; v != nil {
				p.Current = &currentVersion{v.TurnID.String(), v.Number}
			}
			if o := r.Origin; o != nil {
				p.Origin = &turnOrigin{o.SessionID, o.TurnID.String()}
			}
			return p
		}
	}
	return newProblem(internal, "an unexpected error; the server's log has it")
}

// tellable returns the parts of an error that can't hold a text: the code of a problem, and what reach.SafeText returns
// of its cause.
func tellable(err error) string {
	if p, ok := errors.AsType[*problem](err); ok {
		if p.cause == nil {
			return p.Code
		}
		return p.Code + ": " + tellable(p.cause)
	}
	return reach.SafeText(err)
}
