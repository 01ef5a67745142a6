package console

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

//go:embed assets templates
var files embed.FS

// templates are all pages. Each is escaped by its context (html/template), so that a text stays text.
var templates = template.Must(template.New("console").Funcs(template.FuncMap{
	"visible": visible, "time": shownTime, "moment": shownMoment, "stamp": stamp, "roleClass": roleClass,
	"whole": whole, "span": shownSpan, "count": counted, "anchor": anchorOf,
	"short": func(kind string) string { return strings.TrimPrefix(kind, typePrefix) },
}).ParseFS(files, "templates/*.html"))

// contentPolicy allows what comes from this origin, and nothing within a text: no inline script, style or image.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; frame-ancestors 'none'; form-action 'self'; base-uri 'none'"

// policy sets the headers of every answer. The wire sets Cache-Control and X-Content-Type-Options.
func policy(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
}

// view is a page: the name of its template, its title, and what it shows. A title is fixed words, since browsers keep
// titles.
type view struct {
	template, title string
	data            any
}

// layout is what stands around each page.
type layout struct {
	Title, Version string
	Nav            []entry
	// Crumbs are the pages above this one.
	Crumbs []link
	// Next is the address of a page that comes by itself.
	Next string
	// Caller is empty where nobody is signed in.
	Caller string
}

// entry is an entry of the navigation.
type entry struct {
	Label, Href string
	Here        bool
}

// render answers with a page. It is built whole before the first byte is sent, so that a failure has its own status.
func (s *surface) render(w http.ResponseWriter, r *http.Request, status int, v view) error {
	var out bytes.Buffer
	around := s.layoutOf(r, v)
	for _, part := range []struct {
		template string
		data     any
	}{{"top", around}, {v.template, v.data}, {"bottom", around}} {
		if err := templates.ExecuteTemplate(&out, part.template, part.data); err != nil {
			return fmt.Errorf("page %s: %w", v.template, err)
		}
	}
	begin(w, status)
	_, _ = w.Write(out.Bytes()) // an error means that the client has gone
	return nil
}

// begin sends the headers of a page.
func begin(w http.ResponseWriter, status int) {
	policy(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
}

// layoutOf returns what stands around a page.
func (s *surface) layoutOf(r *http.Request, v view) layout {
	f := layout{Title: v.title, Version: s.cfg.Version}
	if below, ok := v.data.(interface{ crumbs() []link }); ok {
		f.Crumbs = below.crumbs()
	}
	if on, ok := v.data.(landed); ok {
		f.Next = on.To
	}
	if v.template != "signin" {
		caller := wire.CallOf(r.Context()).Caller
		f.Nav, f.Caller = s.nav(caller, r.URL.Path), caller.Name
	}
	return f
}

// nav returns the pages that a caller may see, for the navigation.
func (s *surface) nav(caller access.Caller, at string) (list []entry) {
	for _, n := range []struct {
		label, path string
		scopes      access.Scopes
		bound       bool
	}{
		{"Sessions", "/", access.ContextRead | access.EventsRead, true},
		{"Search", "/search", access.ContextRead | access.EventsRead, true},
		{"Playground", "/playground", access.TurnsWrite, false},
		{"Log", "/log", access.EventsRead, false},
		{"Views", "/views", access.Admin, false},
		{"Dead letters", "/deadletters", access.Admin, false},
		{"Receipts", "/receipts", access.TurnsRedact, false},
		{"Keys", "/keys", access.Admin, false},
		{"Statistics", "/stats", access.EventsRead | access.Admin, false},
	} {
		refused := caller.Scopes&n.scopes == 0 || caller.IdentityID != "" && !n.bound
		if n.path == "/playground" && s.cfg.Chat == nil || s.cfg.Auth != nil && refused {
			continue
		}
		here := at == root+n.path || strings.HasPrefix(at, root+n.path+"/") ||
			n.path == "/" && strings.HasPrefix(at, root+"/sessions/")
		list = append(list, entry{n.label, root + n.path, here})
	}
	return list
}

// asset answers with a file of the console.
func asset(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("file")
	raw, err := files.ReadFile("assets/" + path.Base(name))
	if err != nil {
		return errNothing
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	_, _ = w.Write(raw) // an error means that the client has gone
	return nil
}

// visible returns a text with its control characters replaced by their symbols, so that they can be seen and do
// nothing. Line ends and tabs stay.
func visible(s string) string {
	const controls, deleted = '\u2400', '\u2421'
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n', c == '\t':
			return c
		case c < ' ':
			return controls + c
		case c == 0x7f:
			return deleted
		case c > 0x7f && c < 0xa0:
			return '\ufffd'
		default:
			return c
		}
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// roleClass returns the class of the messages of a role.
func roleClass(role string) string {
	switch role {
	case "user", "assistant", "tool":
		return role
	case "system", "developer":
		return "system"
	default:
		return ""
	}
}

// shownTime is a time as people read it, stamp as programs do.
func shownTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// shownMoment is a time as people read it where the order within a second matters.
func shownMoment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000")
}

// shownSpan is a length of time as people say it.
func shownSpan(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Second:
		return "less than 1 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	default:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
}

// counted is a number of things, as people say it.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return strconv.Itoa(n) + " " + thing
}

// crumbsOf returns the pages above a page that is about a session.
func crumbsOf(session string) []link {
	list := []link{{"Sessions", root + "/"}}
	if session != "" {
		list = append(list, link{session, sessionHref(session)})
	}
	return list
}

// whole is a number without its fraction; empty for none.
func whole(n *float64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatFloat(*n, 'f', 0, 64)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
