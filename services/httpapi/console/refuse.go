package console

import (
	"errors"
	"net/http"
	"strings"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
)

// errNothing says that a page names something that does not exist.
var errNothing = &problems.Problem{Class: problems.NotFound, Detail: "there is nothing at this address"}

// statuses are the statuses of problems, by their classes.
var statuses = map[problems.Class]int{
	problems.Malformed: http.StatusBadRequest, problems.Unauthenticated: http.StatusUnauthorized,
	problems.Forbidden: http.StatusForbidden, problems.NotFound: http.StatusNotFound,
	problems.WrongMethod: http.StatusMethodNotAllowed, problems.Conflict: http.StatusConflict,
	problems.Gone: http.StatusGone, problems.TooLarge: http.StatusRequestEntityTooLarge,
	problems.WrongEncoding: http.StatusUnsupportedMediaType, problems.Invalid: http.StatusUnprocessableEntity,
	problems.RateLimited: http.StatusTooManyRequests, problems.Internal: http.StatusInternalServerError,
	problems.ModelFailed: http.StatusBadGateway, problems.ModelBusy: http.StatusBadGateway,
	problems.ModelRefused: http.StatusBadGateway, problems.Unavailable: http.StatusServiceUnavailable,
}

// statusOf returns the status of an error's page, and what the page says. It says nothing of an unknown error.
func statusOf(err error) (status int, say string) {
	p := problems.Of(err)
	say = p.Sentence()
	switch {
	case errors.Is(err, services.ErrNoSession):
		say = "There is no such session, or it was erased: the page Receipts has the erasures."
	case errors.Is(err, wire.ErrNoRoute):
		say = "There is no such page."
	case errors.Is(err, services.ErrModelFailed):
		say += " The question is recorded, and its turn stays pending."
	}
	return statuses[p.Class], say
}

// safeText returns what a log may hold of an error: nothing that a client sent.
func safeText(err error) string {
	if status, say := statusOf(err); status < http.StatusInternalServerError {
		return say
	}
	return wire.SafeText(err, problems.SafeWords()...)
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
	status, say := statusOf(err)
	if !errors.Is(err, access.ErrUnauthenticated) {
		in.Say = say
	} else if r.Method == http.MethodPost {
		in.Say = "No such key."
	}
	if len(r.Cookies()) > 0 {
		clearCookie(w, r)
	}
	_ = s.render(w, r, status, view{"signin", "Sign in", in}) // the client may have gone
}
