package v1

import (
	"cmp"
	"context"
	"errors"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/reach"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

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

// told are errors of the ports and of wire, with what a client is told of them; an empty detail is the error's own text.
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

// tellable returns of an error what can't hold a text: the code of a problem, our own words, those of the log and of the
// chat about its model, and what wire.Tell returns of all others.
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
