package systemtest_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// Texts leave all disks and all answers with a redaction, and with the session or the identity that they belong to,
// those that branches share, too. What the branches have themselves stays.
//
//conformance:h64
func TestNoByteOfAnErasedTextIsLeft(t *testing.T) {
	t.Parallel()
	d, env := newStorage(t)
	env = append(env, "TURNLEDGER_PARTITIONS=4")
	p := stack.Start(t, env, "serve", "--data-dir", d.nats)
	p.LinkIdentity(t, "s", "alice")
	p.RecordTurn(t, "s", "r0", "KEPT-0", "KEPT-0")
	turn := p.RecordTurn(t, "s", "r1", "SECRET-A one", "SECRET-A two")
	summarize := func(session, through, text string) {
		t.Helper()
		p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(session)+"/summaries", map[string]any{
			"request_id": through, "through_turn_id": through, "summary_neutral": text, "summary_translated": text})
	}
	fork := func(session, branch string) {
		t.Helper()
		p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(session)+"/fork",
			map[string]any{"request_id": branch, "session_id": branch})
		p.RecordTurn(t, branch, "own", "KEPT-"+branch, "KEPT-"+branch)
	}
	fork("s", "s-branch")
	fork("s-branch", "s-twig")
	summarize("s", turn, "SECRET-E sum") // void with the correction
	corrected := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+turn+"/correct",
		map[string]any{"request_id": "c1", "answer_neutral": "SECRET-A three"})["turn_id"].(string)
	summarize("s", corrected, "SECRET-F sum") // void with the redaction
	describe := func(session, title, value string) {
		t.Helper()
		p.Must(t, http.StatusOK, http.MethodPatch, stack.SessionPath(session),
			map[string]any{"title": title, "metadata": map[string]any{"note": value}})
	}
	describe("s", "SECRET-D title", "SECRET-D value")
	describe("t", "SECRET-B title", "SECRET-B value")
	describe("u", "SECRET-C title", "SECRET-C value")
	summarize("t", p.RecordTurn(t, "t", "r1", "SECRET-B one", "SECRET-B two"), "SECRET-G sum")
	fork("t", "t-branch")
	p.LinkIdentity(t, "t", "bob")
	p.RecordTurn(t, "u", "r1", "SECRET-C one", "SECRET-C two")
	p.LinkIdentity(t, "u", "carol")
	p.WaitCaughtUp(t, "recent", "audit")
	d.flush(t)
	secrets := []string{"SECRET-A", "SECRET-B", "SECRET-C", "SECRET-D"}
	summaries := []string{"SECRET-E", "SECRET-F", "SECRET-G"}
	holding := d.storesHolding(append(summaries, secrets...)...)
	for _, secret := range summaries[1:] {
		require.Equal(t, []string{"nats"}, holding[secret], "no view holds a summary")
	}
	for _, secret := range secrets {
		require.ElementsMatch(t, []string{"nats", "redis", "postgres"}, holding[secret],
			"the search finds what there is")
	}

	found := func(query string) []any {
		t.Helper()
		return p.Must(t, http.StatusOK, http.MethodPost, "/v1/search", map[string]any{"query": query})["hits"].([]any)
	}
	for _, secret := range secrets[:3] {
		require.NotEmpty(t, found(secret))
	}

	branches := map[string]string{"s-branch": "SECRET-A", "s-twig": "SECRET-A", "t-branch": "SECRET-B"}
	for branch, secret := range branches {
		for name, answer := range answersOf(t, p, branch) {
			require.Equal(t, name != "events", strings.Contains(answer, secret), "%s of %s", name, branch)
		}
	}
	describe("s", "KEPT-0 title", "") // its eraser's work is done before that of the redaction
	gone := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+turn+"/redact",
		map[string]any{"reason": "asked to"})
	code, out, errs := p.Run(t, "erase", "t", "--wait")
	require.Equal(t, stack.ExitDone, code, errs)
	require.Contains(t, out, "session t, complete")
	identity := p.Must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/carol",
		map[string]any{"reason": "left", "redacted_by": "ops"})
	require.Len(t, waitReceipt(t, p, identity["receipt_id"].(string))["places"], 3)
	waitReceipt(t, p, url.PathEscape(gone["position"].(string)))
	p.WaitCaughtUp(t, "recent", "audit")
	d.flush(t)
	before := turnsJSON(t, p, "s")
	nothing := func() {
		t.Helper()
		all := append(slices.Clone(secrets), summaries...)
		holding := d.storesHolding(append(all, "KEPT-0")...)
		for _, secret := range all {
			require.Empty(t, holding[secret])
			require.NotContains(t, p.Log.String()+p.Out.String(), secret)
			require.Empty(t, found(secret))
		}
		require.NotEmpty(t, holding["KEPT-0"])
		require.NotEmpty(t, found("KEPT-0"))
		require.Equal(t, before, turnsJSON(t, p, "s"), "the tombstone is the same as before")
		for branch, secret := range branches {
			for name, answer := range answersOf(t, p, branch) {
				require.NotContains(t, answer, secret, "%s of %s", name, branch)
				require.Contains(t, answer, "KEPT-"+branch, "%s of %s", name, branch)
			}
		}
		require.Equal(t, "session_erased", p.Must(t, http.StatusGone, http.MethodPost, stack.SessionPath("u")+"/turns",
			map[string]any{"request_id": "r9", "question_neutral": "q"})["code"])
		p.Done(t, "projections", "verify")
		out = p.Done(t, "export", "--identity", "alice")
		require.Contains(t, out, "KEPT-0")
		require.NotContains(t, out, "SECRET")
	}
	nothing()
	for _, name := range []string{"recent", "audit"} {
		p.Done(t, "projections", "rebuild", name, "--yes")
	}
	p.Stop(t)
	p = stack.Start(t, env, "serve", "--data-dir", d.nats)
	p.WaitCaughtUp(t, "recent", "audit")
	d.flush(t)
	nothing()
	again := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns",
		map[string]any{"request_id": "r1", "question_neutral": "SECRET-A one"})
	require.Equal(t, "redacted", again["status"], "a late retry brings nothing back")
	nothing()
}

// kill -9 in the middle of erasures: the next process ends them.
func TestKilledWhileItErases(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	dir := stack.DataDir(t)
	p := stack.Start(t, nil, "serve", "--data-dir", dir)
	for i := range 40 {
		p.RecordTurn(t, "s", fmt.Sprint("r", i), "SECRET question", "SECRET answer")
	}
	for i := range 5 {
		p.RecordTurn(t, "kept", fmt.Sprint("r", i), "KEPT question", "KEPT answer")
	}
	id := p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath("s"), nil)["receipt_id"].(string)
	for range 4 {
		<-time.After(time.Duration(rng.IntN(300)) * time.Millisecond)
		p.Kill(t)
		p = stack.Start(t, nil, "serve", "--data-dir", dir)
	}
	places := waitReceipt(t, p, id)["places"].([]any)
	require.Equal(t, "log", places[0].(map[string]any)["place"])
	require.Empty(t, (&storage{nats: dir}).storesHolding("SECRET"))
	require.Len(t, p.Context(t, "kept"), 10)
	require.Empty(t, p.Context(t, "s"))
}

// answersOf returns all that a session says of its turns, by the kind of question.
func answersOf(t *testing.T, p *stack.Process, session string) map[string]string {
	t.Helper()
	path := stack.SessionPath(session)
	out := map[string]string{
		"context": fmt.Sprint(p.BuildContext(t, session, map[string]any{"message": "now", "max_messages": 100})),
		"turns":   fmt.Sprint(p.Get(t, path+"/turns?status=all")),
		"history": fmt.Sprint(p.Get(t, path+"/history")),
		"events":  readEvents(t, p.URL, "session_id="+session),
	}
	for name, args := range map[string][]string{
		"explain": {"explain", session, events.TurnID(session, "own").String(), "--text"},
		"folded":  {"replay", "--turns", "--session", session},
	} {
		said := p.Done(t, args...)
		out[name] = said
	}
	return out
}
