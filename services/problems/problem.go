// Package problems says what clients are told of errors: a code of the contract, and a class of what they can do.
package problems

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// Class says what a client can do about a problem. Each surface has one table from classes to its statuses.
type Class int

// The classes. From RateLimited on, the same request may succeed later.
const (
	Malformed Class = iota + 1
	Invalid
	Unauthenticated
	Forbidden
	NotFound
	Gone
	WrongMethod
	Conflict
	TooLarge
	WrongEncoding
	ModelRefused // by the model's endpoint, for good
	RateLimited
	ModelBusy // its endpoint is asked too often
	ModelFailed
	Unavailable
	Internal
)

// Problem is what a client is told of an error. It names fields of a request, and never holds their values.
type Problem struct {
	// Code is stable: one of docs/contract.md#errors, or a surface's own.
	Code  string
	Class Class
	// Retry: the same request may succeed later; After is the least time until then, 0 if it is not known.
	Retry bool
	After time.Duration
	// Field that is wrong, or "".
	Field string
	// Detail is what is wrong, and Hint what callers of the native API can do.
	Detail, Hint string
	cause        error
}

func (p *Problem) Error() string { return p.Detail + p.Hint }
func (p *Problem) Unwrap() error { return p.cause }

// RetryAfter returns After in whole seconds.
func (p *Problem) RetryAfter() int { return int(math.Ceil(p.After.Seconds())) }

// Sentence returns the detail as a sentence. A field at its beginning keeps its name.
func (p *Problem) Sentence() string {
	text := strings.TrimSuffix(p.Detail, ".") + "."
	if p.Field != "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// Title says what kind of problem a code of the contract is.
func (p *Problem) Title() string { return codes[p.Code].title }

// Codes of problems that surfaces make themselves.
const (
	CodeMalformed       = "malformed"
	CodeForbidden       = "forbidden"
	CodeNotFound        = "not_found"
	CodeInvalid         = "invalid_argument"
	CodeTooLarge        = "body_too_large"
	CodeRebuilding      = "rebuild_running"
	CodeViewUnavailable = "projection_unavailable"
	CodeLogUnavailable  = "log_unavailable"
)

// codes are the codes of docs/contract.md#errors.
var codes = map[string]struct {
	class Class
	title string
}{
	CodeMalformed:               {Malformed, "The body can't be read"},
	"unauthenticated":           {Unauthenticated, "Who are you?"},
	CodeForbidden:               {Forbidden, "Not allowed"},
	CodeNotFound:                {NotFound, "There is no such call"},
	session.CodeSessionNotFound: {NotFound, "There is no such session"},
	session.CodeTurnNotStarted:  {NotFound, "The turn was never started"},
	session.CodeTurnNotFound:    {NotFound, "There is no such turn"},
	"method_not_allowed":        {WrongMethod, "The call has another method"},
	session.CodeLinkedElsewhere: {Conflict, "The session belongs to another identity"},
	session.CodeTurnMismatch:    {Conflict, "The request is another turn's"},
	session.CodeTurnRedacted:    {Conflict, "The turn is redacted"},
	session.CodeTurnReplaced:    {Conflict, "The turn was corrected"},
	session.CodeTurnPending:     {Conflict, "The turn has no answer yet"},
	session.CodeRequestIDInUse:  {Conflict, "The request id is in use"},
	session.CodeSessionExists:   {Conflict, "The session exists"},
	session.CodeForkTooDeep:     {Conflict, "The branch is too deep"},
	session.CodeTurnInherited:   {Conflict, "The turn belongs to another session"},
	"projection_not_fed":        {Conflict, "Another process feeds the projection"},
	CodeRebuilding:              {Conflict, "One rebuild at a time"},
	"log_not_empty":             {Conflict, "The log is not empty"},
	"stream_change_refused":     {Conflict, "The streams can't become that"},
	session.CodeSessionErased:   {Gone, "The session was erased"},
	CodeTooLarge:                {TooLarge, "Too large"},
	"unsupported_encoding":      {WrongEncoding, "The encoding is not read"},
	CodeInvalid:                 {Invalid, "The request is not valid"},
	"rate_limited":              {RateLimited, "Too many requests"},
	"internal":                  {Internal, "Something is wrong here"},
	"model_failed":              {ModelFailed, "The model did not answer"},
	"position_not_reached":      {Unavailable, "Not there yet"},
	CodeLogUnavailable:          {Unavailable, "The log does not answer"},
	"audit_unavailable":         {Unavailable, "The audit tables do not answer"},
	CodeViewUnavailable:         {Unavailable, "A view does not answer"},
	"index_unavailable":         {Unavailable, "There is no index of meanings"},
	"auth_unavailable":          {Unavailable, "Tokens can't be checked"},
	"overloaded":                {Unavailable, "Too much at once"},
}

const (
	noAnswer   = "the log did not answer; if it was a write, it may or may not have happened"
	asIs       = "as is" // the text of the whole error
	listsViews = ": GET /v1/projections lists them"
)

// table has the codes of errors, beside those that have a code of their own (coded, decide.Refusal). The first
// row that an error matches decides. Without a detail it is the text of the row's error.
// docs/operations.md#when-a-write-is-503 explains the rows of status 503 to operators.
var table = []struct {
	err                error
	code, detail, hint string
}{
	{access.ErrKeyEnded, "unauthenticated", "", ""},
	{access.ErrTokenEnded, "unauthenticated", "", ""},
	{access.ErrNoKeys, "auth_unavailable", "", ""},
	{access.ErrNoTokenKey, "auth_unavailable", "", ""},
	{access.ErrIdentityErased, session.CodeSessionErased, "", ""},
	{access.ErrIssuer, "auth_unavailable", "", ""},
	{access.ErrAttempt, CodeMalformed, "", ""},
	{access.ErrUnauthenticated, "unauthenticated", "", ""},
	{services.ErrNoSession, session.CodeSessionNotFound, "", ""},
	{services.ErrOtherIdentity, CodeForbidden, "", ""},
	{services.ErrPositionNotReached, "position_not_reached", "the log does not hold the position yet",
		": ask again in a moment"},
	{services.ErrBehind, "audit_unavailable", "the audit tables have not applied yet what the log holds",
		": turnledger projections list shows how far they are; try again"},
	{services.ErrModelFailed, "model_failed", "the model did not answer",
		"; the turn is kept and pending, and the same request again asks the model again"},
	{services.ErrNoReceipt, CodeNotFound, "there is no such receipt",
		": DELETE of a session or an identity gives one, and the position of a redaction is one"},
	{services.ErrNotExplained, CodeNotFound, "the session has no such turn or event", ""},
	{projections.ErrNoDeadLetter, CodeNotFound, "", ""},
	{projections.ErrNotRebuildable, CodeNotFound, "the projection can't be rebuilt or verified",
		": GET /v1/projections shows which are rebuildable"},
	{projections.ErrNoProjection, CodeNotFound, "there is no such projection", listsViews},
	{projections.ErrNoRebuild, CodeNotFound, "no rebuild of the projection runs in this process",
		": GET /v1/projections shows which do; ask the process that was asked for it"},
	{projections.ErrNotFed, "projection_not_fed", "this process does not feed the projection: ask the one that does",
		", by --url or TURNLEDGER_URL (its role has the name of the view: serve --roles audit feeds the audit, " +
			"--roles recent the recent view in Redis)"},
	{projections.ErrRebuilding, CodeRebuilding, "the projection is being rebuilt or verified already",
		": GET /v1/projections shows how far"},
	{projections.ErrNotYet, "audit_unavailable", "what is too old stays for now: the audit is being rebuilt or " +
		"verified, or has not applied it yet, or the memory outside has not deleted it (turnledger projections " +
		"list); it is tried again each minute", ""},
	{services.ErrNoIndex, "index_unavailable", "", ""},
	{projections.ErrOtherModel, "index_unavailable", "", ""},
	{projections.ErrSomeAnonymous, "index_unavailable", "", ""},
	{projections.ErrEmbedder, "index_unavailable", "the embeddings endpoint does not answer: look at " +
		"TURNLEDGER_EMBED_URL, or search with mode words", ""},
	{services.ErrIndex, "index_unavailable", "the index does not answer: turnledger projections list shows how it stands; " +
		"search with mode words and no cursor, or try again", ""},
	{projections.ErrOutdated, "audit_unavailable", "the audit tables lack what this call needs, since they were " +
		"filled with another TURNLEDGER_SEARCH_CONFIG, or beside another log: run turnledger projections rebuild " +
		"audit", ""},
	// Other views mark their errors with CodeViewUnavailable.
	{projections.ErrUnavailable, "audit_unavailable", "the audit tables do not answer, or there are none: set " +
		"TURNLEDGER_POSTGRES_URL, or try again", ""},
	{jetlog.ErrNotEmpty, "log_not_empty", "", ""},
	{jetlog.ErrTooLarge, CodeTooLarge, "the turn is too large for the log: send shorter texts or messages", ""},
	{jetlog.ErrRefused, "stream_change_refused", asIs, ""},
	{jetlog.ErrNoPartition, CodeNotFound, "there is no such partition", ": GET /v1/streams lists them"},
	{services.ErrBackup, CodeInvalid, asIs, ""},
	{jetlog.ErrNoWrites, CodeLogUnavailable, "the log takes no writes, since it has no room or its disk fails; " +
		"/readyz says more, and the same request later finds out", ""},
	{services.ErrBusy, CodeLogUnavailable, "the session gets so many writes at once that this one lost to the others each " +
		"time: the same request again tries again", ""},
	{jetlog.ErrStream, CodeLogUnavailable, "the log is not the one that this process opened, or another stream takes " +
		"its events: the server's log says what to do; if it was a write, it may or may not have happened", ""},
	{jetlog.ErrUnavailable, CodeLogUnavailable, noAnswer, ": the same request again finds out"},
	{jetlog.ErrClosed, CodeLogUnavailable, noAnswer, ": the same request again finds out"},
	{context.DeadlineExceeded, CodeLogUnavailable, noAnswer, ": the same request again finds out"},
	{context.Canceled, CodeLogUnavailable, noAnswer, ": the same request again finds out"},
}

// coded is an error with a code of its own, and the field that is wrong, if there is one. Clients may read its text.
type coded interface {
	error
	ProblemCode() (code, field string)
}

// Of returns the problem of an error, which wraps the error. Of an unknown one it says nothing.
func Of(err error) *Problem {
	if own, ok := errors.AsType[*Problem](err); ok {
		return own
	}
	p := of(err)
	p.cause = err
	if often, ok := errors.AsType[*services.TooOften](err); ok {
		p.After = often.Wait
	}
	if refused, ok := errors.AsType[*services.ModelRefusal](err); ok && p.Class == ModelFailed {
		p.After, p.Class = refused.After, classOf(refused)
		p.Detail += fmt.Sprintf(" (its endpoint answered %d)", refused.Status)
	}
	return p.timed()
}

// SafeWords are the errors whose own text is the program's, while what they come with may hold a client's. The log of a
// refused token says no more than that it was refused.
func SafeWords() []error {
	known := []error{services.ErrWithheld}
	for _, row := range table {
		if codes[row.code].class != Unauthenticated {
			known = append(known, row.err)
		}
	}
	return known
}

// Plain reports whether the whole text of an error of a port is the program's.
func Plain(err error) bool {
	return slices.ContainsFunc([]error{
		services.ErrModelFailed, services.ErrBehind, services.ErrPositionNotReached,
		jetlog.ErrUnavailable, jetlog.ErrStream, jetlog.ErrTooLarge, jetlog.ErrClosed,
	}, func(own error) bool { return errors.Is(err, own) })
}

// New returns a problem of a code of the contract.
func New(code, detail string) *Problem {
	return (&Problem{Code: code, Class: codes[code].class, Detail: detail}).timed()
}

// Because returns the problem with what caused it.
func (p *Problem) Because(err error) *Problem {
	p.cause = err
	return p
}

// timed says by the class when the same request may come again.
func (p *Problem) timed() *Problem {
	if p.Retry = p.Class >= RateLimited; p.Class == Unavailable {
		p.After = max(p.After, time.Second)
	}
	return p
}

func of(err error) *Problem {
	if wrong, ok := errors.AsType[*decide.Invalid](err); ok {
		p := New(CodeInvalid, wrong.Error())
		p.Field = wrong.Field
		return p
	}
	if own, ok := errors.AsType[coded](err); ok {
		code, field := own.ProblemCode()
		p := New(code, own.Error())
		p.Field = field
		return p
	}
	for _, row := range table {
		if !errors.Is(err, row.err) {
			continue
		}
		p := New(row.code, row.detail)
		p.Hint = row.hint
		switch row.detail {
		case "":
			p.Detail = row.err.Error()
		case asIs:
			p.Detail = err.Error()
		}
		return p
	}
	// The table comes first: an error that joins a refusal with an error of the log means that the refusal could not be
	// recorded for the security audit, and is answered as log_unavailable.
	if r, ok := errors.AsType[*decide.Refusal](err); ok && codes[r.Code].class != 0 {
		return New(r.Code, r.Detail)
	}
	return New("internal", "an unexpected error; the server's log has it")
}

// classOf says whether the call that a model's endpoint refused may succeed later.
func classOf(r *services.ModelRefusal) Class {
	switch {
	case r.Status == http.StatusTooManyRequests:
		return ModelBusy
	case r.Status >= http.StatusInternalServerError:
		return ModelFailed
	default:
		return ModelRefused
	}
}
