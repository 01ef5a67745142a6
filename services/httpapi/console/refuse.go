package console

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/reach"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// errNothing says that a page names something that does not exist.
var errNothing = errors.New("there is nothing at this address")

// statuses are the statuses of errors. The first row that an error matches decides; its say is what the page tells, or
// else the text of the error itself.
var statuses = []struct {
	err    error
	status int
	say    string
}{
	{access.ErrKeyEnded, http.StatusUnauthorized, "The key has expired or was revoked."},
	{access.ErrTokenEnded, http.StatusUnauthorized, "The token has expired."},
	{access.ErrUnauthenticated, http.StatusUnauthorized, ""},
	{access.ErrAttempt, http.StatusBadRequest, ""},
	{access.ErrIssuer, http.StatusServiceUnavailable, ""},
	{access.ErrNoKeys, http.StatusServiceUnavailable, ""},
	{wire.ErrForeign, http.StatusForbidden, ""},
	{wire.ErrNoScope, http.StatusForbidden, ""},
	{wire.ErrBound, http.StatusForbidden, "A key that is bound to an identity sees only the identity's own sessions."},
	{wire.ErrNoRoute, http.StatusNotFound, "There is no such page."},
	{reach.ErrOtherIdentity, http.StatusForbidden, "The key is bound to another identity."},
	{wire.ErrMethod, http.StatusMethodNotAllowed, ""},
	{wire.ErrQuery, http.StatusBadRequest, ""},
	{wire.ErrBody, http.StatusBadRequest, ""},
	{wire.ErrPacked, http.StatusBadRequest, ""},
	{wire.ErrEncoding, http.StatusUnsupportedMediaType, ""},
	{errForm, http.StatusBadRequest, ""},
	{errNothing, http.StatusNotFound, ""},
	{reach.ErrNoSession, http.StatusNotFound, "There is no such session, or it was erased: the page Receipts " +
		"has the erasures."},
	{services.ErrNotExplained, http.StatusNotFound, "The session has no such turn or event."},
	{services.ErrNoReceipt, http.StatusNotFound, "There is no such receipt."},
	{projections.ErrNoProjection, http.StatusNotFound, "There is no such view."},
	{projections.ErrNoDeadLetter, http.StatusNotFound, "There is no such dead letter."},
	{projections.ErrNotFed, http.StatusConflict, "Another process feeds the view: act there."},
	{projections.ErrNoRebuild, http.StatusConflict, "No rebuild of the view runs in this process."},
	{projections.ErrRebuilding, http.StatusConflict, "A rebuild or a comparison of the view is under way."},
	{services.ErrModelFailed, http.StatusBadGateway, "The model did not answer. The question is recorded, and its " +
		"turn stays pending."},
	{services.ErrNoIndex, http.StatusServiceUnavailable, "No index of meanings is configured: search by words."},
	{services.ErrIndex, http.StatusServiceUnavailable, "The index of meanings does not answer: search by words, " +
		"or look at the page Views."},
	{services.ErrBusy, http.StatusServiceUnavailable, "The session is too busy: try again."},
	{conversation.ErrInvalid, http.StatusUnprocessableEntity, "Something in the address or the form is not valid."},
	{wire.ErrOverloaded, http.StatusServiceUnavailable, "Too many requests are under way: try again."},
	{services.ErrPositionNotReached, http.StatusServiceUnavailable, "The log does not hold the position yet."},
	{services.ErrBehind, http.StatusServiceUnavailable, "The audit tables have not applied yet what the log holds: " +
		"the page Views shows how far they are; try again."},
	{projections.ErrUnavailable, http.StatusServiceUnavailable, "The audit tables do not answer, or this process " +
		"has none: TURNLEDGER_POSTGRES_URL names their database."},
	{jetlog.ErrUnavailable, http.StatusServiceUnavailable, "The log does not answer: try again."},
	{jetlog.ErrClosed, http.StatusServiceUnavailable, "The log does not answer: try again."},
	{jetlog.ErrStream, http.StatusServiceUnavailable, "The log is not the one that this process opened."},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, "The answer took too long: try again."},
	{context.Canceled, http.StatusServiceUnavailable, "The request was broken off."},
}

// statusOf returns the status of an error's page, and what the page says. It says nothing of an unknown error.
func statusOf(err error) (status int, say string) {
	if scopes, ok := errors.AsType[*wire.MissingScopes](err); ok {
		return http.StatusForbidden, "The key lacks the scope " + strings.Join(scopes.Scopes.Names(), " or ") + "."
	}
	if wrong, ok := errors.AsType[*conversation.Invalid](err); ok {
		return http.StatusUnprocessableEntity, wrong.Field + " " + wrong.Why + "."
	}
	if large, ok := errors.AsType[*wire.TooLarge](err); ok {
		return http.StatusRequestEntityTooLarge, large.Error()
	}
	if _, ok := errors.AsType[*reach.TooOften](err); ok {
		return http.StatusTooManyRequests, "The session or the identity asks too often: wait a little."
	}
	if held, ok := errors.AsType[*wire.Suspended](err); ok {
		return http.StatusServiceUnavailable, held.Why
	}
	if busy, ok := errors.AsType[*busyError](err); ok {
		return http.StatusConflict, busy.say
	}
	if refused, ok := errors.AsType[*conversation.Refusal](err); ok {
		return refusedStatus(refused.Code), refused.Detail
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			if s.say == "" {
				return s.status, s.err.Error()
			}
			return s.status, s.say
		}
	}
	return http.StatusInternalServerError, "Something is wrong here; the server's log has it."
}

// refusedStatus returns the status of a command that the state of its session does not allow.
func refusedStatus(code string) int {
	switch code {
	case conversation.CodeSessionNotFound, conversation.CodeTurnNotFound, conversation.CodeTurnNotStarted:
		return http.StatusNotFound
	case conversation.CodeSessionErased:
		return http.StatusGone
	default:
		return http.StatusConflict
	}
}

// safeText returns what a log may hold of an error: nothing that a client sent.
func safeText(err error) string {
	if status, say := statusOf(err); status < http.StatusInternalServerError {
		return say
	}
	return reach.Words(err)
}

// refusal is what the page of a refusal shows.
type refusal struct {
	Say string
	// More is a page that says more.
	More *link
}

// shownError is a refusal that has a page of its own.
type shownError struct {
	error
	page view
}

func (e *shownError) Unwrap() error { return e.error }

// signingIn is what the page of a sign-in shows.
type signingIn struct{ Say, To, Issuer string }

// refuse answers with a page that says what is wrong. Callers who are not known get the form to sign in.
func (s *surface) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, say := statusOf(err)
	switch status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusUnauthorized:
		s.refuseUnknown(w, r, err)
		return
	}
	if own, ok := errors.AsType[*shownError](err); ok {
		_ = s.render(w, r, status, own.page) // the client may have gone
		return
	}
	out := refusal{Say: say}
	if strings.HasPrefix(r.URL.Path, root+"/views/") {
		out.More = &link{"To the views", root + "/views"}
	}
	if gone, ok := errors.AsType[*erasedError](err); ok && s.seesReceipts(r.Context()) {
		out = refusal{"This session was erased.", &link{"The receipt of its erasure", receiptHref(gone.at.String())}}
	}
	_ = s.render(w, r, status, view{"refusal", http.StatusText(status), out}) // the client may have gone
}

// refuseUnknown answers with the form to sign in, at the address that was asked for.
func (s *surface) refuseUnknown(w http.ResponseWriter, r *http.Request, err error) {
	in := signingIn{To: within(r.URL.RequestURI())}
	if r.Method != http.MethodGet {
		in.To = root + "/"
	}
	if s.cfg.Login != nil {
		in.Issuer = issuerHref(in.To)
	}
	if _, say := statusOf(err); !errors.Is(err, access.ErrUnauthenticated) {
		in.Say = say
	} else if r.Method == http.MethodPost {
		in.Say = "No such key."
	}
	if len(r.Cookies()) > 0 {
		clearCookie(w, r)
	}
	_ = s.render(w, r, http.StatusUnauthorized, view{"signin", "Sign in", in}) // the client may have gone
}
