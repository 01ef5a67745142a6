package console

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// action is something that a caller can do in the console. Its page says in words what it will do; the form on that
// page is posted to the same address, and leads to the page that shows what was done.
type action struct {
	// path of the page, below the root.
	path   string
	needs  access.Scopes
	admit  admits // as in wire.Route
	title  string
	words  []string
	button string
	// sure asks for a tick, since the action can't be undone.
	sure   bool
	fields []field
	// about shows what the action is about, and fills in the fields; nil if there is nothing to show.
	about func(ctx context.Context, r *http.Request, out *actView) error
	// do does it, and returns the address of the page that shows it.
	do func(ctx context.Context, r *http.Request, form url.Values) (to string, err error)
}

// field is a field of an action's form.
type field struct {
	Name, Label, Value string
	Most               int
	Area, Required     bool
}

// actView is the page of an action.
type actView struct {
	Words   []string
	Names   []named
	Texts   []shownMessage
	Fields  []field
	Sure    bool
	Button  string
	Request string
	Post    string
	Back    string
	// Warn is what to think of before, More a page that says more.
	Warn  string
	More  *link
	Above []link
}

func (v actView) crumbs() []link { return v.Above }

// named is an id with what it is.
type named struct{ What, ID string }

// mostPreset is the longest text that a form begins with, in bytes; browsers edit longer ones slowly.
const mostPreset = 50_000

// preset puts the present text into a field, unless it is too long to be edited there.
func (f *field) preset(text string) {
	if len(text) > mostPreset {
		f.Label += " (the present text is too long to be edited here; it stays if the field is empty)"
		return
	}
	f.Value = text
}

// reasonField asks why; the log keeps the answer for ever.
func reasonField() field {
	return field{Name: "reason", Label: "Reason; the log keeps it for ever, so write no text of a turn", Most: 500}
}

// sureField is the tick of an action that can't be undone.
const sureField = "sure"

// act adds the pages of an action.
func (s *surface) act(a action) {
	s.page(http.MethodGet, a.path, a.needs, 0, a.admit, func(ctx context.Context, r *http.Request) (view, error) {
		out := actView{
			Words: a.words, Sure: a.sure, Button: a.button, Post: r.URL.EscapedPath(), Back: root + "/",
			Above:  crumbsOf(r.PathValue("session_id")),
			Fields: append([]field{}, a.fields...), Request: "console-" + strings.ToLower(rand.Text()),
		}
		for _, what := range []string{"session", "turn", "identity"} {
			if id := r.PathValue(what + "_id"); id != "" {
				out.Names = append(out.Names, named{strings.ToUpper(what[:1]) + what[1:], id})
			}
		}
		if id := r.PathValue("session_id"); id != "" {
			out.Back = sessionHref(id)
		}
		if a.about != nil {
			if err := a.about(ctx, r, &out); err != nil {
				return view{}, err
			}
		}
		return view{"act", a.title, out}, nil
	})
	takes := []string{requestField, sureField}
	for _, f := range a.fields {
		takes = append(takes, f.Name)
	}
	s.post(a.path, a.needs, a.admit, takes, func(
		ctx context.Context, r *http.Request, form url.Values,
	) (string, error) {
		if a.sure && form.Get(sureField) != "yes" {
			return "", invalid(sureField, "must be ticked: this can't be undone")
		}
		return a.do(ctx, r, form)
	})
}

// post adds a form with some fields, whose answer leads to a page.
func (s *surface) post(
	path string, needs access.Scopes, admit admits, takes []string,
	do func(ctx context.Context, r *http.Request, form url.Values) (to string, err error),
) {
	s.routes = append(s.routes, wire.Route{
		Method: http.MethodPost, Path: root + path, Needs: needs, Admit: admit,
		Deadline: s.cfg.Deadline,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			ctx := r.Context()
			if id := r.PathValue("session_id"); id != "" {
				if events.ValidID(id) != nil {
					return errNothing
				}
				wire.CallOf(ctx).SetAttribute("session_id", id)
			}
			form, err := readForm(r, mostForm)
			if err == nil {
				err = only(takes, form, r.URL.Query())
			}
			if err != nil {
				return err
			}
			to, err := do(ctx, r, form)
			if err != nil {
				return err
			}
			wire.CallOf(ctx).Prominent()
			policy(w.Header())
			s.renew(w, r)
			http.Redirect(w, r, to, http.StatusSeeOther)
			return nil
		},
	})
}

// only refuses a form with other fields, or one that comes twice, and an address with a query: what changes something
// ignores nothing that it was told.
func only(takes []string, form, query url.Values) error {
	if len(query) > 0 {
		return invalid("query", "is not taken: send the fields as a form")
	}
	for name, values := range form {
		switch {
		case !slices.Contains(takes, name):
			return invalid("form", "has a field that this action does not have: there are "+strings.Join(takes, ", "))
		case len(values) > 1:
			return invalid(name, "must stand there once")
		}
	}
	return nil
}

// turnOf returns the id of the turn in a request's path.
func turnOf(r *http.Request) (uuid.UUID, error) {
	id, err := uuid.Parse(r.PathValue("turn_id"))
	if err != nil {
		return id, errNothing
	}
	return id, nil
}

// turnTexts shows the texts of the turn that an action is about, to callers who may read them.
func (s *surface) turnTexts(ctx context.Context, r *http.Request, out *actView) error {
	id, err := turnOf(r)
	if err != nil {
		return err
	}
	out.Back += "#t-" + id.String()
	if !s.allows(ctx, access.ContextRead) {
		return nil
	}
	ask := services.Ask{SessionID: r.PathValue("session_id"), AllTurns: true}
	if events.ValidID(ask.SessionID) != nil {
		return errNothing
	}
	reading, err := s.cfg.Sessions.Read(ctx, ask)
	if err != nil {
		return err
	}
	t := reading.State.Turn(id)
	if t == nil {
		return errNothing
	}
	space := room{roomOfTurns}
	out.Texts, _ = messagesOf(t, services.Neutral, &space)
	for i := range out.Fields {
		f := &out.Fields[i]
		switch {
		case f.Name == questionField && t.Question != nil:
			f.preset(t.Question.QuestionNeutral)
		case f.Name == answerField && t.Answer != nil:
			f.preset(t.Answer.AnswerNeutral)
		}
	}
	return nil
}

// callerName is who did something, for the log.
func callerName(ctx context.Context) string { return wire.CallOf(ctx).Caller.Name }
