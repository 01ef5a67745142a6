package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// call is an operation on a session; request and of are turns by their request ids.
type call struct{ kind, request, of, identity, title string }

// reply is what the API said: the status, the code of a refusal, whether it was a
// duplicate, for a reading all turns with their states, and for a look at the session its title and identity.
type reply struct {
	status          int
	code            string
	duplicate       bool
	turns           string
	title, identity string
}

// modelled is the state of a session in the model.
type modelled struct {
	known, erased bool
	identity      string
	title         string
	turns         map[string]modelTurn
}

type modelTurn struct{ status, replaces, by string }

func (m modelled) clone() modelled {
	m.turns = maps.Clone(m.turns)
	return m
}

// key returns the session's state as one line, by which states are compared.
func (m modelled) key() string {
	return fmt.Sprintf("%v %v %q %q %s %v", m.known, m.erased, m.identity, m.title, m.show(), m.turns)
}

// show returns what a reading of all turns shows.
func (m modelled) show() string {
	if m.erased {
		return ""
	}
	var out []string
	for id, t := range m.turns {
		out = append(out, id+" "+t.status)
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
		m.turns[c.request], m.known = modelTurn{status: "pending"}, true
		return m, reply{status: http.StatusCreated}
	case "whole":
		switch {
		case !there:
			m.turns[c.request], m.known = modelTurn{status: "finalized"}, true
			return m, reply{status: http.StatusCreated}
		case t.status != "pending":
			return m, reply{status: http.StatusOK, duplicate: true}
		}
		t.status = "finalized"
		m.turns[c.request] = t
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
		t.status = "finalized"
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

// redact takes all versions of a turn.
func (m modelled) redact(id string) {
	for m.turns[id].replaces != "" {
		id = m.turns[id].replaces
	}
	for id != "" {
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
	m.turns[c.of], m.turns[c.request] = old, modelTurn{status: "finalized", replaces: c.of}
	return m, reply{status: http.StatusOK}
}

// sessionModel returns a session as porcupine checks it.
func sessionModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return modelled{turns: map[string]modelTurn{}} },
		Step: func(state, input, output any) (bool, any) {
			next, want := state.(modelled).step(input.(call))
			return want == output.(reply), next
		},
		Equal:             func(a, b any) bool { return a.(modelled).key() == b.(modelled).key() },
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
		DescribeState:     func(state any) string { return state.(modelled).key() },
	}
}
