package console

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"unicode"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
)

// hitsOnPage is how many turns a page of a search shows.
const hitsOnPage = 20

// searchView is the page of a search. Its query is a text, so it is posted.
type searchView struct {
	Query, Mode, In, Identity, Session, Since, Until string
	// Bound is the identity of a bound caller, Say a notice in place of hits.
	Bound, Say string
	Asked      bool
	Hits       []hitRow
	// Next is the cursor of the next page.
	Next string
	// By is how the turns were found, Lag how many events the index has not applied yet.
	By  services.SearchMode
	Lag uint64
}

// hitRow is a turn that was found, with the address of its place.
type hitRow struct {
	projections.Hit
	Href string
}

// searchForm shows the form of a search. A link may name a session or an identity to search in.
func (s *surface) searchForm(ctx context.Context, r *http.Request) (view, error) {
	query := r.URL.Query()
	return view{"search", "Search", searchView{
		Bound: wire.CallOf(ctx).Caller.IdentityID, Session: query.Get("session_id"), Identity: query.Get("identity_id"),
	}}, nil
}

// search shows the turns that have some words, or a meaning near to theirs.
func (s *surface) search(ctx context.Context, r *http.Request) (view, error) {
	form, err := readForm(r, mostSignIn)
	if err != nil {
		return view{}, err
	}
	caller := wire.CallOf(ctx).Caller
	out := searchView{
		Query: form.Get("query"), Mode: form.Get("mode"), In: form.Get("in"),
		Identity: form.Get("identity_id"), Session: form.Get("session_id"), Since: form.Get("since"),
		Until: form.Get("until"), Bound: caller.IdentityID,
	}
	f, err := out.filter()
	if err != nil {
		return view{}, err
	}
	f.IdentityID, err = services.Across(ctx, out.Identity)
	if scopes, ok := errors.AsType[*access.MissingScopes](err); ok {
		_, out.Say = statusOf(scopes)
		if out.Identity == "" {
			out.Say += " Name an identity."
		}
		return view{"search", "Search", out}, nil
	}
	if err != nil {
		return view{}, err
	}
	if s.cfg.Search == nil {
		return view{}, out.failed(projections.ErrUnavailable)
	}
	page, err := s.cfg.Search.Search(ctx, services.SearchAsk{
		SearchFilter: f, Mode: services.SearchMode(out.Mode), Limit: hitsOnPage, Cursor: form.Get("cursor"),
	})
	if err != nil {
		return view{}, out.failed(acrossError(err))
	}
	out.Asked, out.Next, out.By, out.Lag = true, page.NextCursor, page.Mode, page.Lag
	for _, h := range page.Hits {
		out.Hits = append(out.Hits, hitRow{h, sessionHref(h.SessionID) + "?at=" + h.Position.String() +
			"#t-" + h.TurnID.String()})
	}
	return view{"search", "Search", out}, nil
}

// failed returns an error that shows the form again, with a notice, if another search or a later one may succeed.
func (v searchView) failed(err error) error {
	if problems.Of(err).Class != problems.Unavailable {
		return err
	}
	_, v.Say = statusOf(err)
	return &shownError{err, view{"search", "Search", v}}
}

// filter returns what the search's port is asked for.
func (v *searchView) filter() (f projections.SearchFilter, err error) {
	f = projections.SearchFilter{Query: v.Query, SessionID: v.Session}
	switch v.In {
	case "", string(projections.QuestionHalf), string(projections.AnswerHalf):
		f.In = projections.Half(v.In)
	default:
		return f, invalid("in", "must be question or answer, or left out")
	}
	switch services.SearchMode(v.Mode) {
	case services.AnyMode, services.SearchWords, services.SearchMeaning, services.SearchHybrid:
	default:
		return f, invalid("mode", "must be words, meaning or hybrid, or left out")
	}
	for name, id := range map[string]string{"identity_id": v.Identity, "session_id": v.Session} {
		if id != "" && events.ValidID(id) != nil {
			return f, invalid(name, events.ErrID.Error())
		}
	}
	if v.Query == "" {
		return f, invalid("query", "must have a word to search for")
	}
	if strings.ContainsFunc(v.Query, unicode.IsControl) {
		return f, invalid("query", "must not have control characters")
	}
	if f.Since, err = momentOf("since", v.Since); err == nil {
		f.Until, err = momentOf("until", v.Until)
	}
	return f, err
}
