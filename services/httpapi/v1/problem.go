package v1

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
)

// statuses are the statuses of problems, by their classes (docs/contract.md#errors).
var statuses = map[problems.Class]int{
	problems.Malformed: http.StatusBadRequest, problems.Unauthenticated: http.StatusUnauthorized,
	problems.Forbidden: http.StatusForbidden, problems.NotFound: notFound,
	problems.WrongMethod: http.StatusMethodNotAllowed, problems.Conflict: conflict, problems.Gone: gone,
	problems.TooLarge: tooBig, problems.WrongEncoding: http.StatusUnsupportedMediaType,
	problems.Invalid: http.StatusUnprocessableEntity, problems.RateLimited: tooMany,
	problems.Internal: http.StatusInternalServerError, problems.ModelFailed: http.StatusBadGateway,
	problems.ModelBusy: http.StatusBadGateway, problems.ModelRefused: http.StatusBadGateway,
	problems.Unavailable: http.StatusServiceUnavailable,
}

// problem is an RFC 9457 answer.
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

// problemOf returns the answer for an error.
func problemOf(err error) *problem {
	own := problems.Of(err)
	p := &problem{
		Type: "urn:turnledger:problem:" + own.Code, Title: own.Title(), Status: statuses[own.Class],
		Detail: own.Error(), Code: own.Code,
	}
	if fields, ok := errors.AsType[fieldErrors](err); ok {
		p.Errors = mapped(fields, func(e *decide.Invalid) problemField { return problemField{e.Field, e.Why} })
	} else if own.Class == problems.Invalid && own.Field != "" {
		p.Errors = []problemField{{own.Field, strings.TrimPrefix(own.Detail, own.Field+": ")}}
	}
	if r, ok := errors.AsType[*decide.Refusal](err); ok {
		if v := r.Current; v != nil {
			p.Current = &currentVersion{v.TurnID.String(), v.Number}
		}
		if o := r.Origin; o != nil {
			p.Origin = &turnOrigin{o.SessionID, o.TurnID.String()}
		}
	}
	return p
}

// refuse answers with a problem. Headers tell the client when to try again, or how to authenticate.
func refuse(w http.ResponseWriter, _ *http.Request, err error) {
	p, h := problemOf(err), w.Header()
	if p.Status == http.StatusUnauthorized {
		h["Www-Authenticate"] = []string{"Bearer"}
	}
	if after := problems.Of(err).RetryAfter(); after > 0 {
		h["Retry-After"] = []string{strconv.Itoa(after)}
	}
	h["Content-Type"] = []string{"application/problem+json"}
	wire.WriteJSON(w, p.Status, p)
}

// fieldErrors are all that is wrong with the fields of a request.
type fieldErrors []decide.Invalid

func (f fieldErrors) Error() string {
	if n := len(f) - 1; n > 0 {
		return f[0].Error() + " (and " + strconv.Itoa(n) + " more)"
	}
	return f[0].Error()
}

// ProblemCode returns the code of the contract.
func (f fieldErrors) ProblemCode() (code, field string) { return problems.CodeInvalid, f[0].Field }

// sorted returns the errors by their fields; nil for none.
func (f fieldErrors) sorted() error {
	if f == nil {
		return nil
	}
	slices.SortFunc(f, func(a, b decide.Invalid) int { return strings.Compare(a.Field, b.Field) })
	return f
}

// viewError marks the error of the store of a view that is rebuilt or verified, or of that of a view's dead letters.
func viewError(err error) error {
	return problems.New(problems.CodeViewUnavailable, "the view's store does not answer: "+
		"turnledger projections list shows how it stands; try again").Because(err)
}

// safeText returns the parts of an error that can't hold a text: the code of its problem, and what its causes say.
func safeText(err error) string {
	p := problems.Of(err)
	switch cause := p.Unwrap(); {
	case cause == nil:
		return p.Code
	case problems.Plain(cause):
		return p.Code + ": " + cause.Error()
	default:
		return p.Code + ": " + wire.SafeText(cause, problems.SafeWords()...)
	}
}
