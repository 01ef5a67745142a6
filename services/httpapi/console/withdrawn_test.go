package console_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/console"
)

// erasedAda is a console in which the identity ada was erased, with its two sessions.
func erasedAda(t *testing.T, o *operated) *stack {
	t.Helper()
	s := start(t, nil, o.set)
	for _, session := range []string{"a", "b"} {
		s.turn(session, "1", "a question", "an answer")
		s.link(session, "ada")
	}
	s.turn("other", "1", "a question", "an answer")
	receipt, err := s.services.History.EraseIdentity(t.Context(), "ada", services.Erasure{Reason: "asked", By: "ops"})
	require.NoError(t, err)
	for _, session := range []string{"a", "b"} {
		erased := (&events.IdentityErased{IdentityID: "ada", ReceiptID: receipt, Reason: "asked"}).Of(session)
		_, err := s.log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{erased}})
		require.NoError(t, err)
	}
	o.receipt = services.Receipt{ID: receipt, IdentityID: "ada", Reason: "<b>asked", By: "<i>ops",
		RequestedAt: time.Now()}
	return s
}

// The log of an identity has the identity's own events, each with its receipt, and no link that leads nowhere.
func TestTheLogOfAnErasedIdentity(t *testing.T) {
	t.Parallel()
	o := &operated{}
	s := erasedAda(t, o)
	receipt := `<a href="/console/receipts?id=` + o.receipt.ID + `">Its receipt</a>`
	body := s.page("/console/log?identity_id=ada&type=identity.erased.v1", "").body
	require.Contains(t, body, `Of the identity <bdi class="id">ada</bdi>.`)
	require.Contains(t, body, receipt)
	for _, never := range []string{"In its session", "Whole JSON", "sessions/ada"} {
		require.NotContains(t, body, never)
	}
	body = s.page("/console/log?identity_id=ada&type=session.erased.v1", "").body
	require.Equal(t, 2, strings.Count(body, receipt))
	body = s.page("/console/log?identity_id=ada", "").body
	require.Contains(t, body, "identity.erased.v1")
	require.NotContains(t, body, "other")
}

// An erased session has no page. It says so, and leads to the receipt, for those who may see receipts.
func TestThePageOfAnErasedSession(t *testing.T) {
	t.Parallel()
	o := &operated{}
	s := erasedAda(t, o)
	a := s.page("/console/sessions/a", "")
	require.Equal(t, http.StatusNotFound, a.status)
	require.Contains(t, a.body, "This session was erased.")
	require.Contains(t, a.body, `<a href="/console/receipts?id=0%3A`)
	require.NotContains(t, s.page("/console/sessions/none", "").body, "was erased.")
	keyed := start(t, newRing(map[string]access.Caller{"k": {Name: "reader", Scopes: access.ContextRead}}))
	keyed.turn("s", "1", "a question", "an answer")
	_, err := keyed.services.History.EraseSession(t.Context(), "s", services.Erasure{})
	require.NoError(t, err)
	a = keyed.page("/console/sessions/s", keyed.cookieOf("k"))
	require.Equal(t, http.StatusNotFound, a.status)
	require.NotContains(t, a.body, "receipts?id=")
}

// A receipt says who asked and why, which sessions it took, what each place is, what stays and what it does not reach.
func TestTheReceiptOfAnIdentity(t *testing.T) {
	t.Parallel()
	o := &operated{}
	s := erasedAda(t, o)
	three, two := 3, 2
	o.receipt.Places = []services.ReceiptPlace{
		{Place: "log", Done: true, Erased: &three}, {Place: "audit", Done: true, Erased: &two},
	}
	page := func() string { return s.page("/console/receipts?id="+o.receipt.ID, "").body }
	body := page()
	for _, want := range []string{"&lt;b&gt;asked", "&lt;i&gt;ops", "an erased identity, with all its sessions",
		"<dt>Sessions</dt><dd>2: ", `<a href="/console/log?session_id=a"><bdi class="id">a</bdi></a>, `,
		"<span>3</span> events", "<span>2</span> sessions", "What stays:",
		"backups and copies of the disks", `href="/v1/receipts/` + o.receipt.ID + `">As JSON`} {
		require.Contains(t, body, want)
	}
	require.Contains(t, body, "the tables in PostgreSQL")
	o.receipt.SessionID = "a"
	require.Contains(t, page(), "<span>2</span> turns")
	require.Contains(t, page(), "an erased session")
	o.receipt.TurnID, o.receipt.IdentityID, o.receipt.Owner = "t", "", "bob"
	require.Contains(t, page(), `<bdi class="id">bob</bdi>`)

	// The list has an identity's erasure once, and the identity of a redacted turn's session.
	require.Contains(t, s.page("/console/receipts", "").body, `<bdi class="id">bob</bdi>`)
	o.more = []services.Receipt{{ID: "r", SessionID: "a", IdentityID: "ada"}, {ID: "r", IdentityID: "ada"},
		{ID: "r2", SessionID: "c"}}
	body = s.page("/console/receipts", "").body
	require.Equal(t, 1, strings.Count(body, "<td>identity, with its sessions</td>"))
	require.Equal(t, 1, strings.Count(body, "<td>session</td>"))
}

// The page of an identity's erasure says what it will take, and warns where nothing is known or all is done.
func TestWhatTheErasureOfAnIdentityTakes(t *testing.T) {
	t.Parallel()
	o := &operated{}
	s := erasedAda(t, o)
	body := func(identity string) string { return s.page("/console/identities/"+identity+"/erase", "").body }
	require.Contains(t, body("bob"), "Nothing is linked to bob")
	for _, id := range []string{"s1", "s2", "s3", "s4", "s5", "s6"} {
		s.lists.page.Sessions = append(s.lists.page.Sessions, listed(id, "bob", "", "a question"))
	}
	for _, want := range []string{"6 sessions with 6 turns, from 1970-01-01 00:00:01 to 1970-01-01 00:00:02",
		"s1, s2, s3, s4, s5, and 1 more", `href="/console/?identity_id=bob">Back`, "anonymous"} {
		require.Contains(t, body("bob"), want)
	}
	require.Equal(t, "bob", s.lists.asked.IdentityID)
	s.lists.page.NextCursor = "more"
	require.Contains(t, body("bob"), "at least 30 sessions")
	s.lists.err = errors.New("connection refused")
	require.Contains(t, body("bob"), "does not know how many")
	require.NotContains(t, body("bob"), "connection refused")
	require.Contains(t, body("ada"), "erased already")
	require.Contains(t, body("ada"), `href="/console/receipts?id=`+o.receipt.ID+`">Its receipt`)
	require.Equal(t, http.StatusOK, start(t, nil, func(c *console.Config) { c.Lists = nil }).page(
		"/console/identities/x/erase", "").status)
}

// What can't be undone stands apart, and the list leads on by identity.
func TestErasuresStandApart(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.turn("s", "1", "a question", "an answer")
	s.link("s", "ada")
	body := s.page("/console/sessions/s", "").body
	harmless, forGood, found := strings.Cut(body, `class="pages forgood"`)
	require.True(t, found)
	require.NotContains(t, harmless, "/erase")
	require.Contains(t, forGood, "Erase its identity with all sessions")
	s.lists.page.Sessions = []projections.ListedSession{listed("s", "ada", "", "a question")}
	require.Contains(t, s.page("/console/", "").body,
		`<a href="/console/?identity_id=ada"><bdi class="id">ada</bdi></a>`)
}
