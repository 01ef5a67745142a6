package console_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/console"
)

// How far a comparison is reaches the browser while the comparison goes on, and the page is whole at the end.
func TestAComparisonShowsItsProgress(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	o := &operated{
		compared: func() {
			select {
			case <-seen:
			case <-time.After(10 * time.Second): // no progress came: the page ends, and the test sees that it lacks it
			}
		}, differences: []projections.Difference{{SessionID: "s", What: "missing"}},
	}
	s := start(t, nil, o.set, func(c *console.Config) { c.Keeper = o })
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	answer, err := http.PostForm(server.URL+"/console/views/audit/verify", url.Values{})
	require.NoError(t, err)
	defer func() { require.NoError(t, answer.Body.Close()) }()
	lines, said := bufio.NewScanner(answer.Body), ""
	for !strings.Contains(said, "</progress>") && lines.Scan() {
		said += lines.Text() + "\n"
	}
	require.Contains(t, said, `<progress max="2" value="1" aria-label="Comparison of audit"></progress> 1 of 2 events read`)
	require.NotContains(t, said, "missing")
	close(seen)
	for lines.Scan() {
		said += lines.Text() + "\n"
	}
	require.NoError(t, lines.Err())
	require.Contains(t, said, "2 of 2 events read; now each session is compared.")
	require.Contains(t, said, "1 differences")
	require.Regexp(t, `The log ended at <span class="id">0:0</span> when the comparison began, at <time [^>]*>`+
		`\d{4}-.*</time>; it took (less than 1|\d+) s\.`, said)
	require.Contains(t, said, `href="/console/sessions/s"`)
	require.Contains(t, said, "</html>")
	require.Equal(t, 1, strings.Count(said, "<h1>"))
}

// A comparison that fails says so: by its status before anything is sent, and on its page later.
func TestAComparisonThatFails(t *testing.T) {
	t.Parallel()
	o := &operated{kept: projections.ErrNotFed}
	s := start(t, nil, o.set, func(c *console.Config) { c.Keeper = o })
	o.refused = projections.ErrNotFed
	require.Equal(t, http.StatusConflict, s.do("POST", "/console/views/audit/verify", url.Values{}).status)
	o.refused, o.kept = nil, errors.New("secret cause")
	a := s.do("POST", "/console/views/audit/verify", url.Values{})
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, a.body, "The comparison ended early")
	require.Contains(t, a.body, "</html>")
	require.NotContains(t, a.body, "No difference")
	require.NotContains(t, a.body, "secret cause")
	require.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'none'")
}

// A view that can't be compared or rebuilt now says what is under way, and leads back to the views.
func TestWhatKeepsAViewBusy(t *testing.T) {
	t.Parallel()
	o := &operated{refused: projections.ErrRebuilding, kept: projections.ErrRebuilding}
	s := start(t, nil, o.set, func(c *console.Config) { c.Keeper = o })
	other := projections.Status{Name: "recent", State: "rebuilding", Rebuildable: true}
	for say, list := range map[string][]projections.Status{
		"Another comparison of this view is under way": {{Name: "audit", State: "live"}, other},
		"A rebuild of this view is under way":          {other, {Name: "audit", State: "rebuilding"}},
	} {
		o.statuses = list
		for _, action := range []string{"verify", "rebuild"} {
			a := s.do("POST", "/console/views/audit/"+action, url.Values{})
			require.Equal(t, http.StatusConflict, a.status)
			require.Contains(t, a.body, say, action)
			require.Contains(t, a.body, `<p><a href="/console/views">To the views</a></p>`)
		}
	}
}

// A view says when its last rebuild was done and how long it took, and how far one is in words.
func TestTheTimesOfARebuild(t *testing.T) {
	t.Parallel()
	done := time.Date(2026, 1, 31, 12, 30, 0, 0, time.UTC)
	live := projections.Status{Name: "audit", State: "live", Generation: 2, Rebuildable: true,
		RebuildBegun: done.Add(-78 * time.Second), RebuildDone: done}
	filling := projections.Status{Name: "audit", State: "rebuilding", Generation: 3, Rebuildable: true}
	o := &operated{statuses: []projections.Status{live}}
	s := start(t, nil, o.set, func(c *console.Config) { c.Keeper = o })
	page := func() string { return s.page("/console/views?view=audit&generation=2", "").body }
	require.Equal(t, 2, strings.Count(page(), ">2026-01-31 12:30:00</time>, took 1 min 18 s."), "notice and view")
	o.statuses = append(o.statuses, filling)
	require.Contains(t, page(), "A rebuild is starting.")
	require.NotContains(t, page(), "0 of 0")
	filling.Position.Seq, filling.Head.Seq, filling.ETA = 3, 7, 32_445_065_824*time.Nanosecond
	o.statuses[1] = filling
	require.Equal(t, 1, strings.Count(page(), "about 32 s left"))
	require.Contains(t, page(), "audit/cancel")
	o.statuses[0].Generation = 3
	require.NotContains(t, page(), "audit/cancel", "the new generation is served")
	require.NotContains(t, page(), "state-wait")
}

// The page of views tells what has become of the rebuild that led to it.
func TestWhatBecameOfARebuild(t *testing.T) {
	t.Parallel()
	o := &operated{}
	s := start(t, nil, o.set, func(c *console.Config) { c.Keeper = o })
	to := s.act("/console/views/audit/rebuild", nil)
	require.Equal(t, "/console/views?generation=2&view=audit", to)
	live := func(generation uint64) projections.Status {
		return projections.Status{Name: "audit", State: "live", Generation: generation, Rebuildable: true}
	}
	filling := projections.Status{Name: "audit", State: "rebuilding", Generation: 2, Rebuildable: true}
	failed := projections.Status{Name: "audit", State: "rebuild_failed", Generation: 2, Rebuildable: true}
	for want, list := range map[string][]projections.Status{
		"is under way: it fills generation 2": {live(1), filling},
		"generation 2 is served":              {live(2)},
		"The rebuild of audit failed":         {live(1), failed},
		"ended before it was done":            {live(1)},
	} {
		o.statuses = list
		require.Contains(t, s.page(to, "").body, want)
	}
	for _, other := range []string{"/console/views", "/console/views?view=none&generation=2",
		"/console/views?view=audit&generation=x"} {
		require.NotContains(t, s.page(other, "").body, "The rebuild of", other)
	}
}

// A receipt that runs is fetched again by itself, and says what it proves once it is complete.
func TestAReceiptFollowsItself(t *testing.T) {
	t.Parallel()
	o := &operated{receipt: services.Receipt{
		ID: "0-1-a", SessionID: "a b", Shared: &services.SharedTurns{Branches: 2, Turns: 5},
		Places: []services.ReceiptPlace{{Place: "log"}},
	}}
	s := start(t, nil, o.set)
	a := s.page("/console/receipts?id=0-1-a", "")
	require.Contains(t, a.body, `data-every="1000"`)
	require.Contains(t, a.body, "nothing shows the texts any more")
	require.Contains(t, a.body, "5 shared turns were taken out of 2")
	require.Contains(t, a.body, `href="/console/log?session_id=a`)
	o.receipt.Places[0].Done = true
	a = s.page("/console/receipts?id=0-1-a", "")
	require.NotContains(t, a.body, "data-every")
	require.Contains(t, a.body, "no place below holds the texts any more")
	o.receipt.SessionID, o.receipt.IdentityID = "", "ada"
	require.Contains(t, s.page("/console/receipts?id=0-1-a", "").body, `href="/console/log?identity_id=ada"`)
}

// The last page of a filtered log is live, too; a page with newer ones is not.
func TestAFilteredLogIsLive(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for i := range 60 {
		s.turn(fmt.Sprint("s", i%2), fmt.Sprint(i), "a question", "an answer")
	}
	a := s.page("/console/log?type=turn.started.v1&session_id=s1", "")
	require.Contains(t, a.body, `data-live="/console/log/live?after=0%3A120&amp;session_id=s1&amp;`+
		`type=turn.started.v1"`)
	require.Contains(t, s.page("/console/log", "").body, "data-live")
	require.NotContains(t, s.page("/console/log?from=0:1", "").body, "data-live")
	require.Contains(t, s.page("/console/log?from=0:100", "").body, "data-live")
}

// An event that came much later than its turn, or has none, is on the page that its link opens.
func TestALinkToALateEvent(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	turns := make([]services.Turn, 50)
	for i := range turns {
		turns[i] = s.turn("s", fmt.Sprint(i), fmt.Sprint("question-", i, "-"), "an answer")
	}
	corrected := s.correct("s", turns[3], "a better answer")
	require.Equal(t, "0:101", corrected.String())
	s.turn("s", "last", "q", "a")
	a := s.page("/console/sessions/s?at=0:101", "")
	require.Contains(t, a.body, "question-3-")
	require.Contains(t, a.body, `<details id="e-0-101" open>`)
	s.link("s", "ada")
	linked := events.Position{Seq: 104}
	a = s.page("/console/sessions/s?at="+linked.String(), "")
	require.Contains(t, a.body, `<details id="e-0-104" open>`)
	older := s.page("/console/sessions/s?before="+turns[30].ID.String(), "").body
	require.Contains(t, older, "question-29-")
	require.Contains(t, older, `id="e-0-60"`)
	require.NotContains(t, older, `id="e-0-61"`)

	gone, err := s.services.History.RedactTurn(t.Context(), "s", conversation.Redact{TurnID: turns[5].ID})
	require.NoError(t, err)
	anchor := strings.ReplaceAll(gone.Position.String(), ":", "-")
	a = s.page("/console/sessions/s?at="+gone.Position.String(), "")
	require.Contains(t, a.body, `<details id="e-`+anchor+`" open>`)
	require.Contains(t, a.body, "This turn was redacted")
	before := "/console/sessions/s?before=" + turns[10].ID.String()
	require.Contains(t, s.page(before, "").body, `id="e-`+anchor+`"`, "what became of a turn of the page")
	require.NotContains(t, s.page(before, "").body, "A branch leaves here")
	_, err = s.services.History.ForkSession(t.Context(), conversation.ForkSession{
		SessionID: "s", RequestID: "f", ChildID: "late", TurnID: turns[2].ID,
	})
	require.NoError(t, err)
	require.Contains(t, s.page(before, "").body, `A branch leaves here: <a href="/console/sessions/late">`)
}

// A session is opened by its id, also where nothing lists sessions.
func TestASessionIsOpenedByItsID(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(c *console.Config) { c.Lists = nil })
	a := s.page("/console/", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, a.body, "TURNLEDGER_POSTGRES_URL")
	require.Contains(t, a.body, `action="/console/open"`)
	a = s.page("/console/open?id=+a%2Fb+", "")
	require.Equal(t, http.StatusSeeOther, a.status)
	require.Equal(t, "/console/sessions/a%2Fb", a.header.Get("Location"))
	require.Equal(t, http.StatusUnprocessableEntity, s.page("/console/open?id=..", "").status)
	require.Equal(t, http.StatusUnprocessableEntity, s.page("/console/open", "").status)
}
