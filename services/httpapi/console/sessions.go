package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// sessionsOnPage is how many sessions a page lists. A page of those with pending turns has those of one such list, and
// looks through mostLists for the first.
const (
	sessionsOnPage = 50
	mostLists      = 20
)

// sessionFilter is what a list was asked for, as the form has it.
type sessionFilter struct{ Identity, Pending, Since, Until, Title, Key, Value, Cursor string }

// Posted reports whether the filter has texts, which stand in no address.
func (f sessionFilter) Posted() bool { return f.Title != "" || f.Key != "" }

// filterOf reads a filter. Title and metadata are read from a posted form only: they are texts, and stand in no
// address.
func filterOf(values url.Values) sessionFilter {
	return sessionFilter{
		Identity: values.Get("identity_id"), Pending: values.Get("state"), Since: values.Get("since"),
		Until: values.Get("until"), Cursor: values.Get("cursor"),
	}
}

// query returns the filter as an address has it, with another cursor.
func (f sessionFilter) query(cursor string) string {
	v := url.Values{}
	for name, value := range map[string]string{
		"identity_id": f.Identity, "state": f.Pending, "since": f.Since, "until": f.Until, "cursor": cursor,
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if len(v) == 0 {
		return ""
	}
	return "?" + v.Encode()
}

// sessionsView is the page of the sessions.
type sessionsView struct {
	Filter sessionFilter
	// Bound is the identity of a bound caller. Say is a notice in place of a list.
	Bound, Say string
	Sessions   []sessionRow
	// Identity is what the caller may do to the identity that the list is of.
	Identity []link
	// Next is the address of the next page; Cursor is set where the page was posted, and the next one must be, too.
	Next, Cursor string
}

// sessionRow is a session of the list.
type sessionRow struct {
	projections.ListedSession
	Href  string
	Title string
	Turns int
	// OfIdentity lists the sessions of the same identity.
	OfIdentity string
}

// sessions shows the list of sessions.
func (s *surface) sessions(ctx context.Context, r *http.Request) (view, error) {
	return s.listing(ctx, filterOf(r.URL.Query()))
}

// querySessions shows the list by title and metadata, which are posted.
func (s *surface) querySessions(ctx context.Context, r *http.Request) (view, error) {
	form, err := readForm(r, mostForm)
	if err != nil {
		return view{}, err
	}
	f := filterOf(form)
	f.Title, f.Key, f.Value = form.Get("title"), form.Get("key"), form.Get("value")
	return s.listing(ctx, f)
}

func (s *surface) listing(ctx context.Context, f sessionFilter) (view, error) {
	caller := wire.CallOf(ctx).Caller
	shown := sessionsView{Filter: f, Bound: caller.IdentityID}
	out := view{"sessions", "Sessions", &shown}
	ask, err := s.askOf(ctx, f)
	if scopes, ok := errors.AsType[*access.MissingScopes](err); ok {
		_, shown.Say = statusOf(scopes)
		if f.Identity == "" {
			shown.Say += " Name an identity."
		}
		return out, nil
	}
	if err != nil {
		return out, err
	}
	if s.cfg.Lists == nil {
		shown.Say = "Sessions are listed from PostgreSQL, and this process has none (TURNLEDGER_POSTGRES_URL names " +
			"one). Open a session by its id, or look at the log."
		return out, nil
	}
	if at := ask.IdentityID; at != "" && s.cfg.People != nil && s.allows(ctx, access.ContextRead) {
		shown.Identity = append(shown.Identity, link{"All that is kept of them (zip)", identityHref(at) + "/archive"})
	}
	if at := ask.IdentityID; at != "" && s.cfg.Erasures != nil && s.allows(ctx, access.TurnsRedact) {
		shown.Identity = append(shown.Identity, link{"Erase this identity", identityHref(at) + "/erase"})
	}
	for range mostLists {
		page, err := s.cfg.Lists.Sessions(ctx, ask)
		if err != nil {
			return out, acrossError(err)
		}
		for _, one := range page.Sessions {
			if f.Pending == "pending" && one.Pending == 0 {
				continue
			}
			shown.Sessions = append(shown.Sessions, sessionRow{
				one, sessionHref(one.SessionID), one.Description().Title, one.Finalized + one.Pending,
				root + "/" + sessionFilter{Identity: one.Identity}.query(""),
			})
		}
		if ask.Cursor = page.NextCursor; ask.Cursor == "" || len(shown.Sessions) > 0 {
			break
		}
	}
	if ask.Cursor != "" {
		shown.Next, shown.Cursor = root+"/"+f.query(ask.Cursor), ask.Cursor
	}
	return out, nil
}

// acrossError returns an error of a read of the tables as the caller is told of it.
func acrossError(err error) error {
	if errors.Is(err, decide.ErrInvalid) || errors.Is(err, services.ErrBehind) ||
		errors.Is(err, services.ErrIndex) {
		return err
	}
	return errors.Join(projections.ErrUnavailable, err)
}

// askOf returns what the list's port is asked for.
func (s *surface) askOf(ctx context.Context, f sessionFilter) (ask services.SessionsAsk, err error) {
	ask.Limit, ask.Cursor, ask.Title = sessionsOnPage, f.Cursor, f.Title
	if f.Key != "" {
		ask.Metadata = map[string]string{f.Key: f.Value}
	}
	if f.Pending != "" && f.Pending != "pending" {
		return ask, invalid("state", "must be pending, or left out")
	}
	if f.Identity != "" && events.ValidID(f.Identity) != nil {
		return ask, invalid("identity_id", events.ErrID.Error())
	}
	for name, text := range map[string]string{"title": f.Title, "key": f.Key, "value": f.Value} {
		if strings.ContainsFunc(text, unicode.IsControl) {
			return ask, invalid(name, "must not have control characters")
		}
	}
	if ask.IdentityID, err = services.Across(ctx, f.Identity); err != nil {
		return ask, err
	}
	if ask.Since, err = momentOf("since", f.Since); err != nil {
		return ask, err
	}
	ask.Until, err = momentOf("until", f.Until)
	return ask, err
}

// momentOf reads a time, as RFC 3339 or as a browser's form sends it, in UTC. An empty text is no time.
func momentOf(field, text string) (time.Time, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, invalid(field, "must be a time such as 2026-01-31T14:00")
}

func invalid(field, why string) error { return &decide.Invalid{Field: field, Why: why} }

// openSession leads to the page of the session whose id the form has.
func openSession(w http.ResponseWriter, r *http.Request) error {
	id := strings.TrimSpace(r.URL.Query().Get("id"))
	if events.ValidID(id) != nil {
		return invalid("id", events.ErrID.Error())
	}
	policy(w.Header())
	http.Redirect(w, r, sessionHref(id), http.StatusSeeOther) //nolint:gosec // a path of the console
	return nil
}

// Filtered reports whether the list is of some sessions only.
func (f sessionFilter) Filtered() bool { return f != sessionFilter{} }

// sessionHref returns the address of a session's page.
func sessionHref(id string) string { return root + "/sessions/" + url.PathEscape(id) }
