package deployment_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// check requires what every fault must leave behind: each acknowledged turn is there once and in order,
// whichever process is asked; the log holds no event twice; and both views equal a fresh fold of the
// log.
func (c *userLoad) check() {
	t := c.deployment.t
	t.Helper()
	for _, view := range []string{roleRecent, roleAudit} {
		for _, p := range c.deployment.ofRole(view) {
			p.WaitNoLag(t)
		}
	}
	ids := c.countLogEvents()
	for id, said := range c.sessions {
		var want []string
		for _, x := range said {
			want = append(want, x.line())
		}
		for _, p := range c.deployment.ofRole(roleContext) {
			require.Equal(t, want, allTurns(t, p, id), "session %s", id)
		}
		for _, x := range said {
			turn := events.TurnID(id, x.request).String()
			for kind, there := range map[string]bool{"started": !x.redacted, "finalized": !x.redacted && x.answer != "",
				"redacted": x.redacted} {
				if there {
					require.Equal(t, 1, ids[turn+" turnledger.turn."+kind+".v1"], "%s of %s in %s", kind, x.request, id)
				}
			}
		}
	}
	for view, p := range map[string]*stack.Process{"recent": c.deployment.ofRole(roleRecent)[0],
		"audit": c.deployment.ofRole(roleAudit)[0]} {
		var code int
		var out, errs string
		hang.Until(t, func() bool { // a store that had no connection to spare a moment ago may be asked again
			code, out, errs = p.Run(t, "projections", "verify", view)
			return !strings.Contains(errs, "_unavailable: ")
		}, "%s does not answer", view)
		require.Equal(t, stack.ExitDone, code, out+errs)
		require.Contains(t, out, fmt.Sprint(view, ": "))
		require.NotContains(t, out, ": 0 sessions")
	}
}

// line returns the turn as a reading of all turns shows it.
func (x *userTurn) line() string {
	switch {
	case x.redacted:
		return x.request + " redacted: |"
	case x.answer == "":
		return fmt.Sprintf("%s pending: %s|", x.request, x.question)
	default:
		return fmt.Sprintf("%s finalized: %s|%s", x.request, x.question, x.answer)
	}
}

// allTurns returns all turns of a session.
func allTurns(t require.TestingT, p *stack.Process, id string) (out []string) {
	resp, err := http.Get(p.URL + stack.SessionPath(id) + "/turns?status=all&limit=10000")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var page struct {
		Turns []struct {
			RequestID string `json:"request_id"`
			Status    string
			Question  string `json:"question_neutral"`
			Answer    string `json:"answer_neutral"`
		}
	}
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&page))
	for _, x := range page.Turns {
		out = append(out, fmt.Sprintf("%s %s: %s|%s", x.RequestID, x.Status, x.Question, x.Answer))
	}
	return out
}

// countLogEvents counts the events of each turn by their type.
func (c *userLoad) countLogEvents() map[string]int {
	t := c.deployment.t
	t.Helper()
	resp, err := http.Get(c.deployment.ofRole(roleContext)[0].URL + "/v1/events")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	ids := map[string]int{}
	var seen []string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var e struct {
			ID, Type string
			Data     struct {
				TurnID string `json:"turn_id"`
			}
		}
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		ids[e.Data.TurnID+" "+e.Type]++
		seen = append(seen, e.ID)
	}
	require.NoError(t, lines.Err())
	all := len(seen)
	slices.Sort(seen)
	require.Len(t, slices.Compact(seen), all, "an event is in the log twice")
	return ids
}
