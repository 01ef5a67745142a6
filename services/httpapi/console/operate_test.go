package console_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/console"
)

// operated are ports with fixed answers.
type operated struct {
	statuses []projections.Status
	letters  []projections.DeadLetter
	counts   []projections.Counts
	without  []projections.Anomalies
	asked    services.CountsAsk
	receipt  services.Receipt
	more     []services.Receipt // of the list
	err      error

	// did are the calls of a keeper of views, which fails with kept.
	did         []string
	kept        error
	differences []projections.Difference
	refused     error
	compared    func()
	retried     projections.Retried
	dropped     projections.Drop
}

func (o *operated) Projections(context.Context) ([]projections.Status, error) {
	return o.statuses, o.err
}

func (o *operated) Receipt(_ context.Context, id string) (services.Receipt, error) {
	if id != o.receipt.ID {
		return services.Receipt{}, services.ErrNoReceipt
	}
	return o.receipt, nil
}

func (o *operated) Receipts(_ context.Context, ask services.ReceiptsAsk) (services.ReceiptPage, error) {
	if ask.Cursor != "" {
		return services.ReceiptPage{}, o.err
	}
	list := append([]services.Receipt{o.receipt}, o.more...)
	return services.ReceiptPage{Receipts: list, NextCursor: "0:7,1:3"}, o.err
}

func (o *operated) Counts(_ context.Context, ask services.CountsAsk) (services.CountsPage, error) {
	o.asked = ask
	page := services.CountsPage{Counts: o.counts, LagEvents: 3}
	if ask.WithAnomalies {
		page.Anomalies = o.without
	}
	return page, o.err
}

func (*operated) Name() string { return "audit" }

func (o *operated) DeadLetters(context.Context) ([]projections.DeadLetter, error) {
	return o.letters, o.err
}

func (o *operated) RetryDeadLetter(_ context.Context, at events.Position) (projections.Retried, error) {
	if len(o.letters) == 0 {
		return projections.Retried{}, projections.ErrNoDeadLetter
	}
	o.did = append(o.did, "retry "+at.String())
	return o.retried, nil
}

func (o *operated) DropDeadLetter(
	_ context.Context, at events.Position, d projections.Drop,
) (projections.DeadLetter, error) {
	if len(o.letters) == 0 {
		return projections.DeadLetter{}, projections.ErrNoDeadLetter
	}
	o.did, o.dropped = append(o.did, "drop "+at.String()), d
	return projections.DeadLetter{}, nil
}

func (o *operated) Rebuild(_ context.Context, name string) (uint64, error) {
	o.did = append(o.did, "rebuild "+name)
	return 2, o.kept
}

func (o *operated) CancelRebuild(_ context.Context, name string) (uint64, error) {
	o.did = append(o.did, "cancel "+name)
	return 1, o.kept
}

func (o *operated) Verify(_ context.Context, _ string, _ int, progress func(done, of uint64) error,
	found func(projections.Difference) error) (int, error) {
	if o.refused != nil {
		return 0, o.refused
	}
	err := progress(1, 2)
	if o.compared != nil {
		o.compared()
	}
	err = errors.Join(err, progress(2, 2))
	for _, d := range o.differences {
		err = errors.Join(err, found(d))
	}
	return 7, errors.Join(err, o.kept)
}

func (o *operated) set(c *console.Config) {
	c.Projections, c.Counts, c.Receipts = o, o, o
	c.DeadLetters = []projections.DeadLetterQueue{o}
}

func TestViews(t *testing.T) {
	t.Parallel()
	o := &operated{statuses: []projections.Status{
		{Name: "audit", Partition: 1, State: "live", Position: events.Position{Partition: 1, Seq: 4},
			Head: events.Position{Partition: 1, Seq: 6}, LagEvents: 2, LagSeconds: .5, Generation: 7},
		{Name: "eraser", State: "failed", HeadUnknown: true, LastError: "<b>refused"},
	}}
	s := start(t, nil, o.set)
	a := s.page("/console/views", "")
	require.Equal(t, http.StatusOK, a.status)
	must.Contain(t, a.body, "audit", "1:4", "1:6", ">2<", "0.5", ">7<", "live", "failed",
		"unknown", "&lt;b&gt;refused")
	o.err = errors.New("boom")
	require.Equal(t, http.StatusInternalServerError, s.page("/console/views", "").status)
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	o := &operated{letters: []projections.DeadLetter{
		{Projection: "audit", Position: events.Position{Seq: 7}, SessionID: "a/b", Type: "t",
			Reason: "too <b>long", Attempts: 2},
		{Projection: "audit", Position: events.Position{Seq: 8}, Dropped: &projections.Drop{By: "me", Reason: "known"}},
	}}
	s := start(t, nil, o.set)
	a := s.page("/console/deadletters", "")
	must.Contain(t, a.body, `href="/console/sessions/a%2Fb?at=0:7#e-0-7"`, "too &lt;b&gt;long", "waiting",
		"dropped by", "known")
	for i := range 500 {
		o.letters = append(o.letters, projections.DeadLetter{Position: events.Position{Seq: uint64(i)}})
	}
	require.Contains(t, s.page("/console/deadletters", "").body, "302 more")
	o.letters, o.err = nil, errors.New("connection refused")
	a = s.page("/console/deadletters", "")
	require.Contains(t, a.body, "does not answer")
	require.NotContains(t, a.body, "connection refused")
}

func TestReceipts(t *testing.T) {
	t.Parallel()
	n := 4
	o := &operated{receipt: services.Receipt{ID: "0-42-abc", SessionID: "s", Position: events.Position{Seq: 42},
		Places: []services.ReceiptPlace{{Place: "log", Done: true, Erased: &n}, {Place: "audit"}}}}
	s := start(t, nil, o.set)
	list := s.page("/console/receipts", "")
	require.Equal(t, http.StatusOK, list.status)
	must.Contain(t, list.body, `href="/console/receipts?id=0-42-abc"`, "running</span>, 1 of 2 places",
		`href="/console/receipts?cursor=0%3A7%2C1%3A3"`)
	require.NotContains(t, s.page("/console/receipts?cursor=0:7,1:3", "").body, "0-42-abc")
	require.Equal(t, http.StatusNotFound, s.page("/console/receipts?id=none", "").status)
	a := s.page("/console/receipts?id=0-42-abc", "")
	must.Contain(t, a.body, "running", "log", "done", "audit", "waiting", ">4<")
	o.receipt.Places[1].Done = true
	require.Contains(t, s.page("/console/receipts?id=0-42-abc", "").body, "complete")
}

func TestKeys(t *testing.T) {
	t.Parallel()
	require.Contains(t, start(t, nil).page("/console/keys", "").body, "no file of keys")
	ada := "ada"
	s := start(t, nil, func(c *console.Config) {
		c.Keys = func() ([]access.Key, error) {
			return []access.Key{{Prefix: "tl_abc", Name: "<i>ops", IdentityID: &ada, State: "revoked",
				Scopes: []string{"admin"}, CreatedAt: time.Unix(1, 0)}}, nil
		}
	})
	must.Contain(t, s.page("/console/keys", "").body, "tl_abc", "&lt;i&gt;ops", "ada", "revoked", "admin", "never",
		"turnledger keys revoke")
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	slow := 1234.0
	name := "<b>pipeline"
	o := &operated{}
	s := start(t, nil, o.set)
	s.now.set(time.Date(2026, 1, 31, 12, 30, 0, 0, time.UTC))
	o.counts = []projections.Counts{
		{Start: time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC), By: &name, Started: 17, Pending: 3, AnswerP95: &slow},
		{Start: time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC), Started: 5},
	}
	o.without = []projections.Anomalies{
		{Start: time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC), Reason: "session_erased", Events: 29},
		{Start: time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC), Reason: "<b>reason", Events: 2},
	}
	a := s.page("/console/stats?bucket=hour&by=pipeline_name", "")
	require.Equal(t, http.StatusOK, a.status)
	must.Contain(t, a.body, "<svg", "2026-01-31 10:00: 17 turns", "2026-01-31 10:00: 1234 ms",
		"&lt;b&gt;pipeline",
		"2026-01-31 10:00: 31 events", ">29<", "session_erased",
		"&lt;b&gt;reason", ">17<", ">1234<", "3 events of the log are not counted")
	require.Equal(t, 5, strings.Count(a.body, "<rect"))
	require.Contains(t, a.body, "2026-01-31 10:00: 3 turns", "without an answer")
	require.Equal(t, time.Date(2026, 1, 31, 13, 0, 0, 0, time.UTC), o.asked.Until)
	require.Equal(t, time.Date(2026, 1, 29, 13, 0, 0, 0, time.UTC), o.asked.Since)
	require.True(t, o.asked.Hour)
	s.page("/console/stats", "")
	require.False(t, o.asked.Hour)
	require.Equal(t, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), o.asked.Since)
	for _, wrong := range []string{"?bucket=week", "?by=x"} {
		require.Equal(t, http.StatusUnprocessableEntity, s.page("/console/stats"+wrong, "").status)
	}
	require.NotContains(t, a.body, "no data")
	o.counts = nil
	empty := s.page("/console/stats", "").body
	must.Contain(t, empty, "No turn in this time", `"Answer times, 95 of 100 are below: no data; the table`)
	require.NotContains(t, empty, "0 ms")
	require.Equal(t, http.StatusServiceUnavailable, start(t, nil).page("/console/stats", "").status)
}

func TestTheLog(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	require.Contains(t, s.page("/console/log", "").body, "No events here")
	for i := range 60 {
		s.turn(fmt.Sprint("s", i%2), fmt.Sprint(i), "a question", "an answer")
	}
	rows := func(target string) (positions []string, body string) {
		a := s.page(target, "")
		require.Equal(t, http.StatusOK, a.status, target)
		require.LessOrEqual(t, len(a.body), mostPage)
		for _, part := range strings.Split(a.body, `class="group" id="e-0-`)[1:] {
			n, _, _ := strings.Cut(part, `"`)
			positions = append(positions, n)
		}
		return positions, a.body
	}
	newest, body := rows("/console/log")
	require.Len(t, newest, 50)
	require.Equal(t, []string{"120", "71"}, []string{newest[0], newest[49]}, "the last one stands first")
	require.NotContains(t, body, `rel="next"`)
	require.Contains(t, body, `href="/console/log?before=0%3A70" rel="prev"`)
	older, body := rows("/console/log?from=0:20")
	require.Equal(t, []string{"21", "70"}, []string{older[0], older[49]})
	must.Contain(t, body, `href="/console/log?from=0%3A70" rel="next"`, `href="/console/log?before=0%3A20" rel="prev"`)
	final, body := rows("/console/log?type=turn.finalized.v1&session_id=s1")
	require.Equal(t, []string{"120", "4"}, []string{final[0], final[29]})
	require.Len(t, final, 30)
	require.NotContains(t, body, `rel="prev"`)
	hourAgo := time.Now().Add(-time.Hour).UTC().Format("2006-01-02T15:04")
	since, _ := rows("/console/log?since=" + url.QueryEscape(hourAgo))
	require.Equal(t, "1", since[0])
	for _, wrong := range []string{"?from=x", "?before=x", "?since=x", "?type=x", "?session_id=a&identity_id=b"} {
		require.Equal(t, http.StatusUnprocessableEntity, s.page("/console/log"+wrong, "").status)
	}
	require.Equal(t, http.StatusServiceUnavailable, s.page("/console/log?from=0:999", "").status)
}

// The pages of the newest events lead through the whole log, each event once and the last one first: of all partitions,
// of one type, and where a filter leaves most of it out.
func TestTheLogBackwards(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		s := startWith(t, nil, partitions)
		for i := range 200 {
			s.turn(fmt.Sprint("s", i), fmt.Sprint(i), "a question", "an answer")
			if i < 3 {
				s.link(fmt.Sprint("s", i), "ada")
			}
		}
		for filter, want := range map[string]int{"": 403, "?type=turn.started.v1": 200, "?type=session.linked.v1": 3,
			"?type=session.reset.v1": 0, "?identity_id=ada": 9} {
			seen, pages := s.backwards("/console/log" + filter)
			require.Len(t, seen, want, filter)
			require.LessOrEqual(t, pages, want/50+3, filter)
		}
	}
}

// backwards follows the pages of a log from the newest on, and returns the events on them, and how many pages there
// are.
func (s *stack) backwards(at string) (seen map[string]bool, pages int) {
	s.t.Helper()
	older := regexp.MustCompile(`href="([^"]+)" rel="prev"`)
	event := regexp.MustCompile(`class="group" id="(e-\d+-\d+)".*datetime="([^"]+)"`)
	seen = map[string]bool{}
	var last time.Time
	for ; at != ""; pages++ {
		body := s.page(at, "").body
		for _, row := range event.FindAllStringSubmatch(body, -1) {
			require.False(s.t, seen[row[1]], "%s %s", at, row[1])
			recorded := must.Get(time.Parse(time.RFC3339Nano, row[2]))(s.t)
			require.False(s.t, !last.IsZero() && recorded.After(last), "%s: %s", at, row[1])
			seen[row[1]], last = true, recorded
		}
		require.Equal(s.t, pages == 0, strings.Contains(body, "data-live"), at)
		require.Equal(s.t, pages > 0, strings.Contains(body, "To the newest"), at)
		next := older.FindStringSubmatch(body)
		if at = ""; next != nil {
			at = html.UnescapeString(next[1])
		}
	}
	return seen, pages
}

// Where the newest events are long, the first page of the log has fewer of them, up to the last.
func TestTheLogOfLongEvents(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for i := range 60 {
		s.turn("s", fmt.Sprint(i), strings.Repeat("long ", 1000), "an answer")
	}
	a := s.page("/console/log", "")
	require.LessOrEqual(t, len(a.body), mostPage)
	require.Contains(t, a.body, `id="e-0-120"`)
	require.NotContains(t, a.body, `id="e-0-71"`)
	require.Contains(t, a.body, "data-live")
	require.NotContains(t, a.body, `rel="next"`)
	all := regexp.MustCompile(`class="group" id="e-0-(\d+)"`).FindAllStringSubmatch(a.body, -1)
	first := all[len(all)-1][1]
	older := s.page("/console/log?from=0:20", "").body
	require.Contains(t, older, `id="e-0-21"`)
	require.NotContains(t, older, `id="e-0-70"`)
	require.Contains(t, older, `rel="next"`)
	n := must.Get(strconv.Atoi(first))(t)
	require.Contains(t, a.body, fmt.Sprintf(`href="/console/log?before=0%%3A%d" rel="prev"`, n-1))
}

// How far a comparison is reaches the browser while the comparison goes on, and the page is whole at the end.
func TestAComparisonShowsItsProgress(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	o := &operated{
		compared: func() {
			select {
			case <-seen:
			case <-time.After(hang.Limit): // no progress came: the page ends, and the test sees that it lacks it
			}
		}, differences: []projections.Difference{{SessionID: "s", What: "missing"}},
	}
	s := start(t, nil, o.set, func(c *console.Config) { c.Keeper = o })
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	answer := must.Get(http.PostForm(server.URL+"/console/views/audit/verify", url.Values{}))(t)
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
	must.Contain(t, said, "2 of 2 events read; now each session is compared.", "1 differences")
	require.Regexp(t, `The log ended at <span class="id">0:0</span> when the comparison began, at <time [^>]*>`+
		`\d{4}-.*</time>; it took (less than 1|\d+) s\.`, said)
	must.Contain(t, said, `href="/console/sessions/s"`, "</html>")
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
	must.Contain(t, a.body, "The comparison ended early", "</html>")
	must.Lack(t, a.body, "No difference", "secret cause")
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
	must.Contain(t, a.body, `data-every="1000"`, "nothing shows the texts any more",
		"5 shared turns were taken out of 2", `href="/console/log?session_id=a`)
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
	must.Contain(t, a.body, "question-3-", `<details id="e-0-101" open>`)
	s.link("s", "ada")
	linked := events.Position{Seq: 104}
	require.Contains(t, s.page("/console/sessions/s?at="+linked.String(), "").body, `<details id="e-0-104" open>`)
	older := s.page("/console/sessions/s?before="+turns[30].ID.String(), "").body
	must.Contain(t, older, "question-29-", `id="e-0-60"`)
	require.NotContains(t, older, `id="e-0-61"`)

	gone := must.Get(s.services.History.RedactTurn(t.Context(), "s", decide.Redact{TurnID: turns[5].ID}))(t)
	anchor := strings.ReplaceAll(gone.Position.String(), ":", "-")
	a = s.page("/console/sessions/s?at="+gone.Position.String(), "")
	must.Contain(t, a.body, `<details id="e-`+anchor+`" open>`, "This turn was redacted")
	before := "/console/sessions/s?before=" + turns[10].ID.String()
	require.Contains(t, s.page(before, "").body, `id="e-`+anchor+`"`, "what became of a turn of the page")
	require.NotContains(t, s.page(before, "").body, "A branch leaves here")
	must.Get(s.services.History.ForkSession(t.Context(), decide.ForkSession{
		SessionID: "s", RequestID: "f", ChildID: "late", TurnID: turns[2].ID,
	}))(t)
	require.Contains(t, s.page(before, "").body, `A branch leaves here: <a href="/console/sessions/late">`)
}

// A session is opened by its id, also where nothing lists sessions.
func TestASessionIsOpenedByItsID(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(c *console.Config) { c.Lists = nil })
	a := s.page("/console/", "")
	require.Equal(t, http.StatusOK, a.status)
	must.Contain(t, a.body, "TURNLEDGER_POSTGRES_URL", `action="/console/open"`)
	a = s.page("/console/open?id=+a%2Fb+", "")
	require.Equal(t, http.StatusSeeOther, a.status)
	require.Equal(t, "/console/sessions/a%2Fb", a.header.Get("Location"))
	require.Equal(t, http.StatusUnprocessableEntity, s.page("/console/open?id=..", "").status)
	require.Equal(t, http.StatusUnprocessableEntity, s.page("/console/open", "").status)
}
