package systemtest_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// call is an operation on a session; request and of are turns by their request ids. The request of a fork, and of a
// reading of the branch, is that of the fork. That of a summary is its own, and of is the last turn that it is to
// cover.
type call struct{ kind, request, of, identity, title string }

// reply is what the API said: the status, the code of a refusal, whether it was a duplicate, for a reading all turns
// with their states, for a look at the session its title and identity, for a fork the last turn that is shared, and for
// summaries how many turns each covers.
type reply struct {
	status          int
	code            string
	duplicate       bool
	turns           string
	title, identity string
	through         string
	summaries       string
}

// modelled is the state of a session in the model.
type modelled struct {
	known, erased bool
	identity      string
	title         string
	turns         map[string]modelTurn
	// hidden is the place of the last turn that a reset has hidden.
	hidden   int
	branches map[string]modelBranch
	// summaries are the turns that each summary covers, by its request.
	summaries map[string]string
}

// modelTurn is a version of a turn. All versions have the place of the first; answered is that the first was.
type modelTurn struct {
	status, replaces, by string
	place                int
	answered             bool
}

// modelBranch is a branch: the last turn that it shares, and all that it shares, by their first versions.
type modelBranch struct{ through, shares string }

func (m modelled) clone() modelled {
	m.turns, m.branches, m.summaries = maps.Clone(m.turns), maps.Clone(m.branches), maps.Clone(m.summaries)
	return m
}

// key returns the session's state as one line, by which states are compared.
func (m modelled) key() string {
	return fmt.Sprintf("%v %v %q %q %s %v %d %v %v", m.known, m.erased, m.identity, m.title, m.show(), m.turns,
		m.hidden, m.branches, m.summaries)
}

// show returns what a reading of all turns shows.
func (m modelled) show() string { return m.showThose(func(string) bool { return true }) }

// showBranch returns what a reading of all turns of a branch shows: the shared turns, as they are now.
func (m modelled) showBranch(request string) string {
	shares := strings.Fields(m.branches[request].shares)
	return m.showThose(func(first string) bool { return slices.Contains(shares, first) })
}

// showThose returns all versions of some turns, which are named by their first versions.
func (m modelled) showThose(those func(first string) bool) string {
	if m.erased {
		return ""
	}
	var out []string
	for id, t := range m.turns {
		if those(m.first(id)) {
			out = append(out, id+" "+t.status)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func refused(status int, code string) reply { return reply{status: status, code: code} }

// step returns the session after a call, and what the API must say.
func (m modelled) step(c call) (modelled, reply) {
	t, there := m.turns[c.request]
	switch {
	case c.kind == "read":
		return m, reply{status: http.StatusOK, turns: m.show()}
	case c.kind == "branch":
		return m, reply{status: http.StatusOK, turns: m.showBranch(c.request)}
	case c.kind == "summaries":
		return m, reply{status: http.StatusOK, summaries: m.standing()}
	case c.kind == "look" && m.erased:
		return m, reply{status: http.StatusOK, identity: m.identity} // whose it was stays known
	case c.kind == "look":
		return m, reply{status: http.StatusOK, title: m.title, identity: m.identity}
	case c.kind == "erase" && !m.known:
		return m, refused(http.StatusNotFound, "session_not_found")
	case c.kind == "erase":
		m.erased = true
		return m, reply{status: http.StatusAccepted}
	case m.erased:
		return m, refused(http.StatusGone, "session_erased")
	}
	m = m.clone()
	switch c.kind {
	case "link":
		if m.identity != "" && m.identity != c.identity {
			return m, refused(http.StatusConflict, "session_linked_elsewhere")
		}
		linked := m.identity == c.identity
		m.identity, m.known = c.identity, true
		return m, reply{status: http.StatusOK, duplicate: linked}
	case "start":
		if there {
			return m, reply{status: http.StatusOK, duplicate: true}
		}
		m.turns[c.request], m.known = modelTurn{status: "pending", place: m.places() + 1}, true
		return m, reply{status: http.StatusCreated}
	case "whole":
		switch {
		case !there:
			m.turns[c.request], m.known = modelTurn{status: "finalized", place: m.places() + 1, answered: true}, true
			return m, reply{status: http.StatusCreated}
		case t.status != "pending":
			return m, reply{status: http.StatusOK, duplicate: true}
		}
		t.status, t.answered = "finalized", true
		m.turns[c.request] = t
	case "reset":
		m.hidden = m.places()
	case "fork":
		return m.fork(c)
	case "summarise":
		return m.summarise(c)
	case "describe":
		m.title, m.known = c.title, true
	case "finalize":
		switch {
		case !there:
			return m, refused(http.StatusNotFound, "turn_not_started")
		case t.status == "redacted":
			return m, refused(http.StatusConflict, "turn_redacted")
		case t.status != "pending":
			return m, reply{status: http.StatusOK, duplicate: true}
		}
		t.status, t.answered = "finalized", true
		m.turns[c.request] = t
	case "redact":
		switch {
		case !there:
			return m, refused(http.StatusNotFound, "turn_not_found")
		case t.status == "redacted":
			return m, reply{status: http.StatusOK, duplicate: true}
		}
		m.redact(c.request)
	case "correct":
		return m.correct(c)
	}
	return m, reply{status: http.StatusOK}
}

// places returns the place of the last turn.
func (m modelled) places() (last int) {
	for _, t := range m.turns {
		last = max(last, t.place)
	}
	return last
}

// first returns the first version of a turn.
func (m modelled) first(id string) string {
	for m.turns[id].replaces != "" {
		id = m.turns[id].replaces
	}
	return id
}

// fork makes the branch of a request, if there is none: it ends with the last finalized turn that prompts show.
func (m modelled) fork(c call) (modelled, reply) {
	if !m.known {
		return m, refused(http.StatusNotFound, "session_not_found")
	}
	b, forked := m.branches[c.request]
	if !forked {
		through := 0
		for id, t := range m.turns {
			if t.status == "finalized" && t.place > max(through, m.hidden) {
				through, b.through = t.place, id
			}
		}
		var shares []string
		for id, t := range m.turns {
			if t.answered && t.place <= through && t.replaces == "" {
				shares = append(shares, id)
			}
		}
		slices.Sort(shares)
		b.shares = strings.Join(shares, " ")
		m.branches[c.request] = b
	}
	return m, reply{status: http.StatusCreated, through: b.through}
}

// covered returns the turns that prompts show up to a place, in their order.
func (m modelled) covered(place int) string {
	shown := map[int]string{}
	for id, t := range m.turns {
		if t.place > m.hidden && t.place <= place && (t.status == "finalized" || t.status == "pending") {
			shown[t.place] = id
		}
	}
	var ids []string
	for _, at := range slices.Sorted(maps.Keys(shown)) {
		ids = append(ids, shown[at])
	}
	return strings.Join(ids, " ")
}

// stands reports whether the summary of a request stands: prompts show the turns that it covers, and none between.
func (m modelled) stands(request string) bool {
	ids := strings.Fields(m.summaries[request])
	return !m.erased && len(ids) > 0 && m.covered(m.turns[ids[len(ids)-1]].place) == m.summaries[request]
}

// standing returns the summaries that stand, each with the number of its turns.
func (m modelled) standing() string {
	var out []string
	for request, ids := range m.summaries {
		if m.stands(request) {
			out = append(out, covers(request, len(strings.Fields(ids))))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func covers(request string, turns int) string { return fmt.Sprintf("%s covers %d", request, turns) }

// summarise records a summary; a request whose summary is void makes no other.
func (m modelled) summarise(c call) (modelled, reply) {
	if m.stands(c.request) {
		said := covers(c.request, len(strings.Fields(m.summaries[c.request])))
		return m, reply{status: http.StatusOK, duplicate: true, summaries: said}
	}
	last, there := m.turns[c.of]
	switch {
	case !there:
		return m, refused(http.StatusNotFound, "turn_not_found")
	case last.status != "finalized":
		return m, refused(http.StatusConflict, "turn_"+last.status)
	case last.place <= m.hidden:
		return m, refused(http.StatusUnprocessableEntity, "invalid_argument")
	}
	ids := m.covered(last.place)
	for id := range strings.FieldsSeq(ids) {
		if m.turns[id].status == "pending" {
			return m, refused(http.StatusConflict, "turn_pending")
		}
	}
	if m.summaries[c.request] != "" {
		for _, t := range m.turns {
			if t.status == "redacted" && t.place > m.hidden && t.place <= last.place {
				return m, refused(http.StatusConflict, "turn_redacted")
			}
		}
		return m, refused(http.StatusConflict, "turn_replaced")
	}
	m.summaries[c.request] = ids
	return m, reply{status: http.StatusCreated, summaries: covers(c.request, len(strings.Fields(ids)))}
}

// redact takes all versions of a turn.
func (m modelled) redact(id string) {
	for id = m.first(id); id != ""; {
		t := m.turns[id]
		t.status = "redacted"
		m.turns[id] = t
		id = t.by
	}
}

func (m modelled) correct(c call) (modelled, reply) {
	if t, there := m.turns[c.request]; there {
		if t.replaces == c.of {
			return m, reply{status: http.StatusOK, duplicate: true}
		}
		return m, refused(http.StatusConflict, "request_id_in_use")
	}
	old, there := m.turns[c.of]
	if !there {
		return m, refused(http.StatusNotFound, "turn_not_found")
	}
	if old.status != "finalized" {
		return m, refused(http.StatusConflict, "turn_"+old.status)
	}
	old.status, old.by = "replaced", c.request
	m.turns[c.of] = old
	m.turns[c.request] = modelTurn{status: "finalized", replaces: c.of, place: old.place, answered: true}
	return m, reply{status: http.StatusOK}
}

// sessionModel returns a session as porcupine checks it.
func sessionModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			return modelled{turns: map[string]modelTurn{}, branches: map[string]modelBranch{},
				summaries: map[string]string{}}
		},
		Step: func(state, input, output any) (bool, any) {
			next, want := state.(modelled).step(input.(call))
			return want == output.(reply), next
		},
		Equal:             func(a, b any) bool { return a.(modelled).key() == b.(modelled).key() },
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
		DescribeState:     func(state any) string { return state.(modelled).key() },
	}
}
