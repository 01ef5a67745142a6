package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/console"
	"github.com/turnledger/turnledger/services/problems"
)

// state returns a session as it is.
func (s *stack) state(id string) *session.State {
	s.t.Helper()
	return must.Get(s.services.Reader.Read(s.t.Context(), services.Ask{SessionID: id, AllTurns: true}))(s.t).State
}

// act opens the page of an action, posts its form with some fields, and returns where that leads.
func (s *stack) act(path string, fields url.Values, headers ...string) string {
	s.t.Helper()
	a := s.do("GET", path, nil, headers...)
	require.Equal(s.t, http.StatusOK, a.status, a.body)
	require.Contains(s.t, a.body, `method="post" action="`+path+`"`)
	form := url.Values{}
	for _, hidden := range regexp.MustCompile(`name="request_id" value="([^"]+)"`).FindAllStringSubmatch(a.body, -1) {
		form.Set("request_id", hidden[1])
	}
	for name, values := range fields {
		require.Contains(s.t, a.body, `name="`+name+`"`)
		form[name] = values
	}
	done := s.do("POST", path, form, headers...)
	require.Equal(s.t, http.StatusSeeOther, done.status, done.body)
	to := done.header.Get("Location")
	again := s.do("POST", path, form, headers...)
	require.Equal(s.t, to, again.header.Get("Location"), "the same form again is the same action: %s", again.body)
	return to
}

func TestActionsOnATurn(t *testing.T) {
	t.Parallel()
	s := start(t, newRing(map[string]access.Caller{"ops": {Name: "ops", Scopes: every}}))
	cookie := []string{"Cookie", s.cookieOf("ops")}
	turn := s.turn("a/b", "r", "a question", "an answer")
	page := "/console/sessions/a%2Fb/turns/"
	links := s.page("/console/sessions/a%2Fb", cookie[1]).body
	for _, verb := range []string{"correct", "fork", "redact"} {
		require.Contains(t, links, `href="`+page+turn.ID.String()+"/"+verb+`"`)
	}

	to := s.act(page+turn.ID.String()+"/correct", url.Values{
		"answer": {"a better\r\nanswer"}, "question": {"a question"},
	}, cookie...)
	corrected := s.state("a/b").Turns[1]
	require.Contains(t, to, "#t-"+corrected.ID.String())
	require.Equal(t, "a better\nanswer", corrected.Answer.AnswerNeutral)
	require.Equal(t, "a question", corrected.Question.QuestionNeutral)
	address, _, _ := strings.Cut(to, "#")
	require.Equal(t, http.StatusOK, s.page(address, cookie[1]).status)
	late := url.Values{"answer": {"late"}, "request_id": {"other"}}
	a := s.do("POST", page+turn.ID.String()+"/correct", late, cookie...)
	require.Equal(t, http.StatusConflict, a.status)

	to = s.act(page+corrected.ID.String()+"/fork", nil, cookie...)
	branch := strings.TrimPrefix(to, "/console/sessions/")
	require.Len(t, s.state(branch).Turns, 2, "both versions of the shared turn")

	redact := page + corrected.ID.String() + "/redact"
	require.Contains(t, s.do("GET", redact, nil, cookie...).body, "a better\nanswer")
	a = s.do("POST", redact, url.Values{}, cookie...)
	require.Equal(t, http.StatusUnprocessableEntity, a.status, "without the tick")
	require.Equal(t, session.Finalized, s.state("a/b").Turns[1].Status)
	to = s.act(redact, url.Values{"sure": {"yes"}, "reason": {"asked"}}, cookie...)
	require.Regexp(t, `^/console/receipts\?id=0%3A\d+$`, to)
	require.Equal(t, session.Redacted, s.state("a/b").Turns[1].Status)
	require.NotContains(t, s.page("/console/sessions/a%2Fb", cookie[1]).body, "/redact")
	require.Contains(t, s.page("/console/log?type=turn.redacted.v1", cookie[1]).body, "ops")
	none := page + events.TurnID("a/b", "none").String()
	require.Equal(t, http.StatusNotFound, s.page(none+"/redact", cookie[1]).status)
}

func TestActionsOnASession(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.turn("s", "r", "a question", "an answer")
	s.link("s", "ada/1")
	for _, link := range []string{"sessions/s/describe", "sessions/s/reset", "sessions/s/export", "sessions/s/erase",
		"identities/ada%2F1/erase"} {
		require.Contains(t, s.page("/console/sessions/s", "").body, `href="/console/`+link+`"`)
	}
	s.act("/console/sessions/s/describe", url.Values{"title": {"A title"}, "key": {"folder"}, "value": {"crime"}})
	is := s.state("s").Description()
	require.Equal(t, "A title", is.Title)
	require.JSONEq(t, `{"folder":"crime"}`, is.Metadata)
	require.Contains(t, s.page("/console/sessions/s/describe", "").body, `value="A title"`)
	s.act("/console/sessions/s/describe", url.Values{"title": {""}, "key": {"folder"}})
	require.Empty(t, s.state("s").Description().Title)
	require.Equal(t, "/console/sessions/s", s.act("/console/sessions/s/reset", url.Values{"reason": {"anew"}}))
	require.NotZero(t, s.state("s").Boundary)

	export := s.page("/console/sessions/s/export", "")
	require.Contains(t, export.header.Get("Content-Disposition"), "attachment")
	lines := strings.Split(strings.TrimSpace(export.body), "\n")
	require.Contains(t, lines[0], "a question")
	require.Contains(t, lines[len(lines)-1], "session.reset")

	to := s.act("/console/sessions/s/erase", url.Values{"sure": {"yes"}})
	require.Contains(t, to, "/console/receipts?id=0-")
	require.NotZero(t, s.state("s").Erased)
	require.Equal(t, http.StatusGone, s.do("POST", "/console/sessions/s/reset", url.Values{}).status)
	s.turn("t", "r", "a question", "")
	s.link("t", "ada/1")
	to = s.act("/console/identities/ada%2F1/erase", url.Values{"sure": {"yes"}})
	require.Contains(t, to, "/console/receipts?id=0-")
}

// What changes something ignores nothing that it was told: it is not done, and the answer says why.
//
//conformance:c1
func TestActionsRefuseWhatTheyDoNotKnow(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	turn := s.turn("s", "r", "a question", "an answer")
	s.link("s", "ada")
	on := "/console/sessions/s"
	for _, path := range []string{on + "/reset", on + "/describe", on + "/erase", "/console/identities/ada/erase",
		on + "/turns/" + turn.ID.String() + "/redact", on + "/turns/" + turn.ID.String() + "/fork"} {
		form := url.Values{"sure": {"yes"}, "request_id": {"x"}}
		require.Equal(t, http.StatusUnprocessableEntity, s.do("POST", path+"?dry_run=true", form).status, path)
		form.Set("dry_run", "true")
		a := s.do("POST", path, form)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, path)
		require.NotContains(t, a.body, "dry_run", "what was sent is not printed")
		form = url.Values{"sure": {"yes"}, "request_id": {"x", "y"}}
		require.Equal(t, http.StatusUnprocessableEntity, s.do("POST", path, form).status, path)
	}
	is := s.state("s")
	require.Zero(t, is.Erased)
	require.Zero(t, is.Boundary)
	require.Equal(t, session.Finalized, is.Turns[0].Status)
}

func TestActionsOnViewsAndDeadLetters(t *testing.T) {
	t.Parallel()
	at := events.Position{Seq: 7}
	o := &operated{
		statuses: []projections.Status{
			{Name: "audit", State: "live", Rebuildable: true},
			{Name: "recent", State: "rebuilding", Rebuildable: true, Position: at, Head: events.Position{Seq: 28}},
			{Name: "eraser", State: "live"},
		},
		letters: []projections.DeadLetter{{Projection: "audit", Position: at}},
	}
	s := start(t, nil, o.set, func(c *console.Config) { c.Keeper = o })
	views := s.page("/console/views", "").body
	must.Contain(t, views, `href="/console/views/audit/rebuild"`, `action="/console/views/audit/verify"`,
		`action="/console/views/recent/cancel"`, "7 of 28 events", `value="25"`)
	must.Lack(t, views, "recent/rebuild", "audit/cancel", "eraser/")
	require.Equal(t, "/console/views?generation=2&view=audit", s.act("/console/views/audit/rebuild", nil))
	require.Equal(t, http.StatusSeeOther, s.do("POST", "/console/views/recent/cancel", url.Values{}).status)
	require.Equal(t, []string{"rebuild audit", "rebuild audit", "cancel recent"}, o.did)
	require.Contains(t, s.do("POST", "/console/views/audit/verify", url.Values{}).body, "No difference")
	for range 300 {
		o.differences = append(o.differences, projections.Difference{SessionID: "a/b", What: "<b>missing"})
	}
	compared := s.do("POST", "/console/views/audit/verify", url.Values{})
	require.Equal(t, http.StatusOK, compared.status)
	must.Contain(t, compared.body, "300 differences", "in 7 sessions", "&lt;b&gt;missing",
		`href="/console/sessions/a%2Fb"`)
	require.Equal(t, 200, strings.Count(compared.body, "missing"))
	for err, status := range map[error]int{projections.ErrNoProjection: 404, projections.ErrRebuilding: 409,
		projections.ErrNotFed: 409, projections.ErrNoRebuild: 404, errors.New("boom"): 500} {
		o.kept = err
		require.Equal(t, status, s.do("POST", "/console/views/audit/cancel", url.Values{}).status)
	}
	for class := problems.Malformed; class <= problems.Internal; class++ { // each has a status
		o.kept = &problems.Problem{Class: class, Detail: "no"}
		require.GreaterOrEqual(t, s.do("POST", "/console/views/audit/cancel", url.Values{}).status, 400, class)
	}

	o.did = nil
	retry := func() string {
		return s.do("POST", "/console/deadletters/audit/0:7/retry", url.Values{}).header.Get("Location")
	}
	require.Contains(t, s.page(retry(), "").body, "refused the event again")
	o.retried.Applied = true
	require.Contains(t, s.page(retry(), "").body, "has applied the event")
	a := s.do("POST", "/console/deadletters/audit/0:7/drop", url.Values{})
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	s.act("/console/deadletters/audit/0:7/drop", url.Values{"reason": {"known"}})
	require.Equal(t, []string{"retry 0:7", "retry 0:7", "drop 0:7", "drop 0:7"}, o.did)
	require.Equal(t, "known", o.dropped.Reason)
	for _, none := range []string{"audit/x", "other/0:7"} {
		a := s.do("POST", "/console/deadletters/"+none+"/retry", url.Values{})
		require.Equal(t, http.StatusNotFound, a.status, none)
	}
}

// No page of another site can act here, whatever it posts, and this site's own can.
func TestNoActionIsTakenFromAnotherSite(t *testing.T) {
	t.Parallel()
	s := start(t, newRing(map[string]access.Caller{"ops": {Name: "ops", Scopes: every}}))
	cookie := s.cookieOf("ops")
	turn := s.turn("s", "r", "a question", "an answer")
	before, posts := s.page("/console/log", cookie).body, 0
	for _, route := range s.api.Routes() {
		if route.Method != http.MethodPost || !strings.HasPrefix(route.Path, "/console") {
			continue
		}
		posts++
		path := strings.NewReplacer("{session_id}", "s", "{turn_id}", turn.ID.String(), "{identity_id}", "ada",
			"{name}", "audit", "{projection}", "audit", "{position}", "0:1").Replace(route.Path)
		form := url.Values{"sure": {"yes"}, "request_id": {"x"}, "reason": {"x"}, "answer": {"x"}, "query": {"x"}}
		for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
			{"Origin", "https://evil.example"}} {
			a := s.do("POST", path, form, append(headers, "Cookie", cookie)...)
			require.Equal(t, http.StatusForbidden, a.status, path)
		}
	}
	require.Greater(t, posts, 12)
	require.Equal(t, before, s.page("/console/log", cookie).body, "nothing was recorded")
}

// away reads no session.
type away struct{}

func (away) Read(context.Context, services.Ask) (services.Reading, error) {
	return services.Reading{}, fmt.Errorf("read: %w", jetlog.ErrUnavailable)
}

// Where the check of reach, the view, the lists or the log fail, no page says that there is no session, and none shows
// an empty list: it is 503.
//
//conformance:l14
func TestAnOutageIsNoAbsence(t *testing.T) {
	t.Parallel()
	own := "own"
	type begun struct {
		*stack
		links *reader
		stop  func()
		ask   func(path string) answer
		paths []string
	}
	begin := func(t *testing.T, patience time.Duration) (b begun) {
		server := natstest.Server(t)
		b.stop = server.Stop
		callers := map[string]access.Caller{"ada": {Name: "ada", Scopes: every &^ access.Admin, IdentityID: "ada"}}
		b.stack = startOn(t, natstest.LogOn(t, server, 1), newRing(callers), func(c *console.Config) {
			b.links = &reader{c.LinkReader}
			c.LinkReader, c.Deadline = b.links, patience
		})
		at := b.turn(own, "r", "question", "answer").Position
		b.link(own, "ada")
		cookie := b.cookieOf("ada")
		for _, route := range b.api.Routes() {
			if route.Method == http.MethodGet && strings.Contains(route.Path, "/console/") && route.Admit != nil &&
				!strings.HasSuffix(route.Path, "/live") {
				path := strings.NewReplacer("{identity_id}", "ada", "{session_id}", own, "{position}", at.String(),
					"{turn_id}", events.TurnID(own, "r").String()).Replace(route.Path)
				b.paths = append(b.paths, path)
			}
		}
		b.ask = func(path string) answer { return b.page(path, cookie) }
		return b
	}
	all := begin(t, hang.Limit)
	well := map[string]bool{} // pages that show something of the session
	for _, path := range all.paths {
		if all.ask(path).status == http.StatusOK {
			well[path] = true
		}
	}
	require.Greater(t, len(well), 8)

	of := func(page string) string { return "/console/sessions/own/" + page }
	for part, answered := range map[string][]string{ // pages that do not need the part
		"reach": {"/console/", "/console/search", "/console/identities/ada/erase", "/console/identities/ada/archive"},
		"view": {"/console/search", "/console/identities/ada/erase", "/console/identities/ada/archive", of("erase"),
			of("reset"), of("export"), of("events/0:2"), of("events/0:1")},
		"log": {"/console/", "/console/search"},
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			b := begin(t, map[bool]time.Duration{true: 5 * time.Second, false: hang.Limit}[part == "log"])
			switch part {
			case "reach":
				b.links.SessionReader = away{}
			case "view":
				b.reader.SessionReader, b.lists.err = away{}, projections.ErrUnavailable
			case "log":
				b.stop()
			}
			var all sync.WaitGroup
			for _, path := range b.paths {
				if !well[path] {
					continue
				}
				all.Go(func() {
					want := http.StatusServiceUnavailable
					if slices.Contains(answered, path) {
						want = http.StatusOK
					}
					a := b.ask(path)
					assert.Equal(t, want, a.status, "%s: %s", path, a.body)
				})
			}
			all.Wait()
		})
	}
}

// searched is a search with fixed answers, which remembers what it was asked.
type searched struct {
	asked services.SearchAsk
	page  services.SearchPage
	err   error
}

func (s *searched) Search(_ context.Context, ask services.SearchAsk) (services.SearchPage, error) {
	s.asked = ask
	return s.page, s.err
}

func (s *searched) set(c *console.Config) { c.Search = s }

// The words of a search are posted: they stand in no address, title or log line.
func TestSearching(t *testing.T) {
	t.Parallel()
	turn := uuid.New()
	found := &searched{page: services.SearchPage{
		NextCursor: "more", Mode: services.SearchHybrid, Lag: 7,
		Hits: []projections.Hit{{
			SessionID: "a/b", IdentityID: "ada", TurnID: turn, Half: projections.QuestionHalf,
			CreatedAt: time.Unix(1, 0), Position: events.Position{Seq: 7}, Snippet: "<b>a secret</b> place",
		}},
	}}
	s := start(t, nil, found.set)
	require.Contains(t, s.page("/console/search?session_id=a%2Fb", "").body, `value="a/b"`)
	require.NotContains(t, s.page("/console/search?query=secret", "").body, "secret", "none is read from an address")
	a := s.do("POST", "/console/search", url.Values{"query": {"secret words"}, "in": {"question"},
		"mode": {"hybrid"}, "session_id": {"a/b"}, "identity_id": {"ada"},
		"since": {"2026-01-02T03:04"}, "until": {"2026-01-03"}, "cursor": {"c"}})
	require.Equal(t, http.StatusOK, a.status)
	want := projections.SearchFilter{Query: "secret words", In: projections.QuestionHalf, SessionID: "a/b",
		IdentityID: "ada"}
	want.Since = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	want.Until = time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)
	require.Equal(t, services.SearchAsk{SearchFilter: want, Mode: services.SearchHybrid, Limit: 20, Cursor: "c"},
		found.asked)
	must.Contain(t, a.body, `href="/console/sessions/a%2Fb?at=0:7#t-`+turn.String(), "&lt;b&gt;a secret",
		`name="cursor" value="more"`, "by words and meaning", "not applied 7 events")
	require.NotContains(t, s.logs.String(), "secret")
	for _, wrong := range []url.Values{{}, {"query": {"q"}, "in": {"x"}}, {"query": {"q"}, "mode": {"x"}},
		{"query": {"q"}, "since": {"soon"}},
		{"query": {"q"}, "session_id": {"."}}} {
		require.Equal(t, http.StatusUnprocessableEntity, s.do("POST", "/console/search", wrong).status, wrong)
	}
	for _, text := range hostile {
		found.page.Hits[0].Snippet = text
		a := s.do("POST", "/console/search", url.Values{"query": {text[:min(len(text), 500)]}})
		requireText(t, a.body)
	}
	for err, say := range map[error]string{
		services.ErrBehind: "have not applied yet", services.ErrIndex: "does not answer",
		errors.Join(services.ErrIndex, services.ErrNoIndex): "No index of meanings is configured",
	} {
		found.err = err
		a := s.do("POST", "/console/search", url.Values{"query": {"q"}})
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.Contains(t, a.body, say)
	}
	kept := s.do("POST", "/console/search", url.Values{"query": {"some <words"}, "mode": {"meaning"}}).body
	require.Contains(t, kept, `name="query" value="some &lt;words"`, "the form is kept")
	require.Contains(t, kept, `value="meaning" selected`)
	found.err, found.page = nil, services.SearchPage{}
	none := s.do("POST", "/console/search", url.Values{"query": {"some <words"}}).body
	require.Contains(t, none, "Nothing found for “<bdi>some &lt;words</bdi>”.")
	without := start(t, nil).do("POST", "/console/search", url.Values{"query": {"q"}})
	require.Equal(t, http.StatusServiceUnavailable, without.status)
}

// A bound key searches its own sessions; a key without events:read names an identity.
func TestWhoseTurnsAreSearched(t *testing.T) {
	t.Parallel()
	found := &searched{}
	s := start(t, newRing(map[string]access.Caller{
		"ada": {Name: "ada", Scopes: reads, IdentityID: "ada"}, "reader": {Name: "reader", Scopes: reads},
	}), found.set)
	search := func(cookie, identity string) answer {
		return s.do("POST", "/console/search", url.Values{"query": {"q"}, "identity_id": {identity}}, "Cookie", cookie)
	}
	ada, reader := s.cookieOf("ada"), s.cookieOf("reader")
	require.Equal(t, http.StatusOK, search(ada, "").status)
	require.Equal(t, "ada", found.asked.IdentityID)
	require.Equal(t, http.StatusForbidden, search(ada, "bob").status)
	found.asked = services.SearchAsk{}
	require.Contains(t, search(reader, "").body, "Name an identity")
	require.Zero(t, found.asked, "nothing was searched")
	search(reader, "bob")
	require.Equal(t, "bob", found.asked.IdentityID)
}

// chatted is a chat that answers with two pieces, or fails, and remembers the message.
type chatted struct {
	sent    services.ChatMessage
	err     error
	endless bool
}

func (c *chatted) Send(
	ctx context.Context, m services.ChatMessage, to services.Listener,
) (services.ChatReply, error) {
	c.sent = m
	if _, bounded := ctx.Deadline(); !bounded {
		c.endless = true
	}
	to.Begun(services.Step{SessionID: "a thread", TurnID: uuid.New()})
	to.Piece(said("Hel"))
	to.Piece(said("lo\x1b"))
	return services.ChatReply{ThreadID: "a thread"}, c.err
}

func TestAMessageOfThePlayground(t *testing.T) {
	t.Parallel()
	chat := &chatted{}
	s := start(t, nil, func(c *console.Config) { c.Chat = chat })
	turn := uuid.New()
	a := s.do("POST", "/console/playground/stream", url.Values{"thread_id": {"t/1"}, "content": {"secret\r\nwords"},
		"identity_id": {"ada"}, "request_id": {"r"}, "edits_turn_id": {turn.String()}})
	require.Equal(t, services.ChatMessage{ThreadID: "t/1", UserID: "ada", RequestID: "r", Content: "secret\nwords",
		Edits: turn}, chat.sent)
	must.Contain(t, a.body, "event: begun", `data: {"text":"Hel"}`, `data: {"text":"lo␛"}`,
		`event: done`, `"page":"/console/playground?thread_id=a+thread#message"`)
	require.NotContains(t, s.logs.String(), "secret")
	again := url.Values{"regenerates_turn_id": {turn.String()}, "content": {"x"}}
	sent := s.do("POST", "/console/playground/send", again)
	require.Equal(t, "/console/playground?thread_id=a+thread#message", sent.header.Get("Location"))
	require.Equal(t, services.ChatMessage{Regenerates: turn}, chat.sent)
	require.False(t, chat.endless, "a model that sends a byte now and then holds no message for ever")
	for _, wrong := range []url.Values{{}, {"content": {"c"}, "thread_id": {"."}}, {"content": {"c"},
		"edits_turn_id": {"x"}}} {
		for _, path := range []string{"send", "stream", "prompt"} {
			refused := s.do("POST", "/console/playground/"+path, wrong)
			require.Equal(t, http.StatusUnprocessableEntity, refused.status, wrong)
		}
	}
	chat.err = services.ErrModelFailed
	failed := s.do("POST", "/console/playground/stream", url.Values{"content": {"c"}})
	must.Contain(t, failed.body, "event: failed", "stays pending")
	waited := s.do("POST", "/console/playground/send", url.Values{"content": {"c"}})
	require.Equal(t, http.StatusBadGateway, waited.status)
	require.Equal(t, http.StatusNotFound, start(t, nil).page("/console/playground", "").status, "without a chat")
	require.NotContains(t, start(t, nil).page("/console/log", "").body, "Playground")
}

// The prompt of a message is shown before anything is recorded, beside the thread as it stands.
func TestThePromptOfThePlayground(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(c *console.Config) { c.Chat = &chatted{} })
	asked := s.turn("s", "r", "an earlier question", "an earlier answer")
	before := s.page("/console/log", "").body
	a := s.do("POST", "/console/playground/prompt", url.Values{"thread_id": {"s"}, "content": {"<i>next"}})
	require.Equal(t, http.StatusOK, a.status)
	prompt, _, _ := strings.Cut(a.body[strings.Index(a.body, `id="prompt"`):], "</section>")
	must.Contain(t, prompt, "an earlier question", "an earlier answer", "&lt;i&gt;next", "1 turn of history",
		"tokens")
	require.Equal(t, before, s.page("/console/log", "").body)
	edit := s.page("/console/playground?thread_id=s&edit="+asked.ID.String(), "").body
	must.Contain(t, edit, `name="edits_turn_id" value="`+asked.ID.String(), "\nan earlier question</textarea>",
		`name="regenerates_turn_id" value="`+asked.ID.String())
	empty := s.do("POST", "/console/playground/prompt", url.Values{"content": {"first"}})
	require.Contains(t, empty.body, "0 turns of history")
}
