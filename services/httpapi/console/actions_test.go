package console_test

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/console"
	"github.com/turnledger/turnledger/services/problems"
)

// state returns a session as it is.
func (s *stack) state(id string) *conversation.State {
	s.t.Helper()
	reading, err := s.services.Reader.Read(s.t.Context(), services.Ask{SessionID: id, AllTurns: true})
	require.NoError(s.t, err)
	return reading.State
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
	require.Equal(t, conversation.Finalized, s.state("a/b").Turns[1].Status)
	to = s.act(redact, url.Values{"sure": {"yes"}, "reason": {"asked"}}, cookie...)
	require.Regexp(t, `^/console/receipts\?id=0%3A\d+$`, to)
	require.Equal(t, conversation.Redacted, s.state("a/b").Turns[1].Status)
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
	require.Equal(t, conversation.Finalized, is.Turns[0].Status)
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
	for _, want := range []string{`href="/console/views/audit/rebuild"`, `action="/console/views/audit/verify"`,
		`action="/console/views/recent/cancel"`, "7 of 28 events", `value="25"`} {
		require.Contains(t, views, want)
	}
	for _, never := range []string{"recent/rebuild", "audit/cancel", "eraser/"} {
		require.NotContains(t, views, never)
	}
	require.Equal(t, "/console/views?generation=2&view=audit", s.act("/console/views/audit/rebuild", nil))
	require.Equal(t, http.StatusSeeOther, s.do("POST", "/console/views/recent/cancel", url.Values{}).status)
	require.Equal(t, []string{"rebuild audit", "rebuild audit", "cancel recent"}, o.did)
	require.Contains(t, s.do("POST", "/console/views/audit/verify", url.Values{}).body, "No difference")
	for range 300 {
		o.differences = append(o.differences, projections.Difference{SessionID: "a/b", What: "<b>missing"})
	}
	compared := s.do("POST", "/console/views/audit/verify", url.Values{})
	require.Equal(t, http.StatusOK, compared.status)
	for _, want := range []string{"300 differences", "in 7 sessions", "&lt;b&gt;missing",
		`href="/console/sessions/a%2Fb"`} {
		require.Contains(t, compared.body, want)
	}
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
