package systemtest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// Texts that branches share leave all disks and all answers, with a redaction and with the session that they stand in.
// What the branches have themselves stays.
func TestNoByteOfASharedTextIsLeft(t *testing.T) {
	t.Parallel()
	d, env := newStorage(t)
	env = append(env, "TURNLEDGER_PARTITIONS=4")
	p := stack.Start(t, env, "serve", "--data-dir", d.nats)
	fork := func(session, branch string) {
		p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(session)+"/fork",
			map[string]any{"request_id": branch, "session_id": branch})
	}
	p.LinkIdentity(t, "stem", "alice")
	p.RecordTurn(t, "stem", "r1", "SECRET-B one", "SECRET-B two")
	redacted := p.RecordTurn(t, "stem", "r2", "SECRET-A one", "SECRET-A two")
	fork("stem", "branch")
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("stem")+"/turns/"+redacted+"/correct",
		map[string]any{"request_id": "c2", "answer_neutral": "SECRET-A three"})
	p.RecordTurn(t, "branch", "r1", "KEPT-1", "KEPT-1")
	fork("branch", "twig")
	p.RecordTurn(t, "twig", "r1", "KEPT-2", "KEPT-2")
	p.WaitCaughtUp(t, "recent", "audit")
	branches := []string{"branch", "twig"}
	for _, secret := range []string{"SECRET-A", "SECRET-B"} {
		d.flush(t)
		require.ElementsMatch(t, []string{"nats", "redis", "postgres"}, d.storesHolding(t, secret))
		for _, branch := range branches {
			for name, answer := range answersOf(t, p, branch) {
				require.Equal(t, name != "events", strings.Contains(answer, secret), "%s of %s", name, branch)
			}
		}
		if secret == "SECRET-A" {
			path := stack.SessionPath("stem") + "/turns/" + redacted + "/redact"
			gone := p.Must(t, http.StatusOK, http.MethodPost, path, nil)
			waitReceipt(t, p, gone["position"].(string))
		} else {
			gone := p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath("stem"), nil)
			receipt := waitReceipt(t, p, gone["receipt_id"].(string))
			require.Equal(t, []any{2.0, 1.0}, []any{receipt["branches"], receipt["shared_turns"]})
		}
		nothing := func() {
			t.Helper()
			p.WaitCaughtUp(t, "recent", "audit")
			d.flush(t)
			require.Empty(t, d.storesHolding(t, secret))
			require.NotContains(t, p.Log.String()+p.Out.String(), secret)
			for _, branch := range branches {
				for name, answer := range answersOf(t, p, branch) {
					require.NotContains(t, answer, secret, "%s of %s", name, branch)
					require.Contains(t, answer, map[string]string{"branch": "KEPT-1", "twig": "KEPT-2"}[branch], name)
				}
			}
		}
		nothing()
		for _, name := range []string{"recent", "audit"} {
			code, _, errs := p.Run(t, "projections", "rebuild", name, "--yes")
			require.Equal(t, stack.ExitDone, code, errs)
		}
		p.Stop(t)
		p = stack.Start(t, env, "serve", "--data-dir", d.nats)
		nothing()
	}
}

// answersOf returns all that a session says of its turns, by the kind of question.
func answersOf(t *testing.T, p *stack.Process, session string) map[string]string {
	t.Helper()
	path := stack.SessionPath(session)
	out := map[string]string{
		"context": fmt.Sprint(p.BuildContext(t, session, map[string]any{"message": "now", "max_messages": 100})),
		"turns":   fmt.Sprint(p.Get(t, path+"/turns?status=all")),
		"history": fmt.Sprint(p.Get(t, path+"/history")),
	}
	own := events.TurnID(session, "r1").String()
	for name, args := range map[string][]string{
		"explain": {"explain", session, own, "--text"},
		"folded":  {"replay", "--turns", "--session", session},
		"events":  {"replay", "--session", session},
		"export":  {"export", "--identity", "alice"},
	} {
		code, said, errs := p.Run(t, args...)
		require.Equal(t, stack.ExitDone, code, errs)
		out[name] = said
	}
	return out
}
