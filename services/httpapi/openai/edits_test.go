package openai_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/events/decide"
)

// Many clients of one session edit it, each otherwise, and go on with the old id: each finds its branch, however many
// came after it, with its whole history or without its front.
func TestManyClientsEachFindTheirEdit(t *testing.T) {
	t.Parallel()
	m := &saying{}
	s := start(t, answeredBy(m))
	history := ""
	for n := range 3 {
		m.says(fmt.Sprint("a", n))
		s.chat("s", history+fmt.Sprint("u q", n))
		history += fmt.Sprintf("u q%d, a a%d, ", n, n)
	}
	const clients = 70
	m.says("so")
	branch := map[int]string{}
	for n := range clients {
		a := s.chat("s", fmt.Sprintf("u q0, a a0, u edit %d", n))
		require.Equal(t, "fork", became(a))
		branch[n] = a.header.Get("X-Turnledger-Session")
	}
	for n := range clients {
		edit, then := fmt.Sprint("u edit ", n), fmt.Sprint("u then ", n)
		lists := []string{
			"u q0, a a0, " + edit + ", a so, " + then, edit + ", a so, " + then + ", a so, u on",
		}
		if n >= clients-64 { // without its own beginning, only the newest branches are looked through
			lists = append(lists, then+", a so, u on, a so, u off")
		}
		for _, list := range lists {
			a := s.chat("s", list)
			require.Equal(t, branch[n], a.header.Get("X-Turnledger-Session"), list)
			require.Equal(t, "turn", became(a), list)
		}
	}
	require.Len(t, s.branches("s"), clients)
}

// The same with items that come with their ids, which begin no session anew.
func TestManyHistoriesEachFindTheirEdit(t *testing.T) {
	t.Parallel()
	_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "so"} })
	s := start(t, answeredBy(m))
	id := s.begin()
	s.post(id, user("q0"), assistant("a0"))
	s.post(id, user("q1"), assistant("a1"))
	front := agentsHistory(s, id)[:2]
	const clients = 12
	branch := map[int]string{}
	input := func(n int, more ...string) []string {
		return append(append(front[:2:2], user(fmt.Sprint("edit ", n))), more...)
	}
	for n := range clients {
		branch[n] = s.sessionOf(s.respondTo(input(n))["id"].(string))
	}
	for n := range clients {
		r := s.respondTo(input(n, assistant("so"), user("then")))
		require.Equal(t, branch[n], s.sessionOf(r["id"].(string)))
		// A second edit, in the branch, is one branch of it.
		again := s.respondTo(input(n, assistant("so"), user("otherwise")))
		second := s.sessionOf(again["id"].(string))
		require.NotEqual(t, branch[n], second)
		r = s.respondTo(input(n, assistant("so"), user("otherwise"), assistant("so"), user("on")))
		require.Equal(t, second, s.sessionOf(r["id"].(string)))
		require.Equal(t, []string{"user: otherwise", "assistant: so", "user: on", "assistant: so"}, s.own(second))
		require.Len(t, s.branches(branch[n]), 1)
	}
	require.Len(t, s.branches(id), clients)
}

// A second edit, of what stands in a branch, and a third inside that: each goes on in one branch.
func TestAnEditOfAnEdit(t *testing.T) {
	t.Parallel()
	m := &saying{}
	s := start(t, answeredBy(m))
	m.says("a")
	s.chat("s", "u q0")
	s.chat("s", "u q0, a a, u q1")
	history, seen := "u q0, a a, ", map[string]bool{"s": true}
	for depth := range 3 {
		history += fmt.Sprintf("u edit %d", depth)
		a := s.chat("s", history)
		require.Equal(t, "fork", became(a))
		in := a.header.Get("X-Turnledger-Session")
		require.False(t, seen[in])
		seen[in] = true
		for n := range 3 {
			a = s.chat("s", history+", a a"+strings.Repeat(", u on, a a", n)+", u on")
			require.Equal(t, "turn", became(a))
			require.Equal(t, in, a.header.Get("X-Turnledger-Session"))
		}
		history += ", a a, "
	}
}

// What a session has no more does not hide what stands in a branch at its place: neither a redacted last turn hides the
// edit of it, nor redacted words that a client still has come back in the branch behind them.
func TestABranchBesideWhatIsGone(t *testing.T) {
	t.Parallel()
	m := &saying{}
	s := start(t, answeredBy(m))
	m.says("a")
	redact := func(id string, turn int) {
		t.Helper()
		_, err := s.services.History.RedactTurn(t.Context(), id, decide.Redact{TurnID: s.turnsOf(id)[turn].ID})
		require.NoError(t, err)
	}
	s.chat("s", "u q0")
	s.chat("s", "u q0, a a, u q1")
	edit := s.chat("s", "u q0, a a, u edit").header.Get("X-Turnledger-Session")
	redact("s", 1)
	for n := range 3 {
		a := s.chat("s", "u q0, a a, u edit, a a"+on(n))
		require.Equal(t, edit, a.header.Get("X-Turnledger-Session"))
	}
	// The branch's own last turn goes, and its client still has it.
	redact(edit, 4)
	for n := range 3 {
		a := s.chat("s", "u q0, a a, u edit, a a"+on(3+n))
		require.Equal(t, edit, a.header.Get("X-Turnledger-Session"))
		require.Equal(t, "turn", became(a))
	}
	require.Equal(t, []string{"q0|a", "edit|a", "on 0|a", "on 1|a", "on 3|a", "on 4|a", "on 5|a"}, s.said(edit))
	require.Len(t, s.branches("s"), 1)

	// An edit behind what is gone.
	for n := range 4 {
		s.chat("r", historyOf(n)+fmt.Sprint("u q", n))
	}
	redact("r", 1)
	a := s.chat("r", historyOf(3)+"u edit")
	require.Equal(t, "fork", became(a))
	in := a.header.Get("X-Turnledger-Session")
	for n := range 3 {
		a = s.chat("r", historyOf(3)+"u edit, a a"+on(n))
		require.Equal(t, in, a.header.Get("X-Turnledger-Session"))
	}
	require.NotContains(t, strings.Join(s.said(in), ","), "q1")
	redact("r", 2)
	a = s.chat("r", historyOf(3)+"u edit, a a"+on(3))
	require.Equal(t, in, a.header.Get("X-Turnledger-Session"))
	require.NotContains(t, strings.Join(s.said(in), ","), "q2")
	require.Len(t, s.branches("r"), 1)
}

// historyOf is that of some exchanges, each with a comma behind it.
func historyOf(exchanges int) (list string) {
	for n := range exchanges {
		list += fmt.Sprintf("u q%d, a a, ", n)
	}
	return list
}

// on is how somebody goes on, the last time without an answer.
func on(n int) (list string) {
	for n := range n {
		list += fmt.Sprintf(", u on %d, a a", n)
	}
	return list + fmt.Sprint(", u on ", n)
}
