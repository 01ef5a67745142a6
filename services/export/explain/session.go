package explain

import (
	"math"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/export"
)

// story is what a replay prints of a session, and what it folds into. It states nothing of redacted texts.
type story struct {
	lines [][]byte
	all   []events.Recorded
	today *session.State
}

func read(id string, log Log) (*story, error) {
	s := &story{today: session.New(id, session.Rules{})}
	for line, err := range log(id) {
		if err != nil {
			return nil, err
		}
		line = slices.Clone(line)
		r, err := export.Recorded(line)
		if err != nil {
			return nil, err
		}
		s.today.Fold(r)
		s.lines, s.all = append(s.lines, line), append(s.all, r)
	}
	return s, nil
}

// readOrigins reads the sessions of a branch's segments.
func (s *story) readOrigins(log Log) ([]*story, error) {
	list := s.today.Fork().Segments()
	origins := make([]*story, len(list))
	var err error
	for i, g := range list {
		if origins[i], err = read(g.SessionID, log); err != nil {
			return nil, err
		}
	}
	return origins, nil
}

// then folds the session's events that stood at an earlier place.
func (s *story) then(stood func(events.Recorded) bool) *session.State {
	state := session.New(s.today.SessionID, session.Rules{})
	for _, r := range s.all {
		if stood(r) {
			state.Fold(r)
		}
	}
	return state
}

// moment says which events of other sessions stood when an event of a session was recorded: those before it in its
// partition, and those of the other partitions that were recorded up to its time.
type moment struct {
	position events.Position
	time     time.Time
}

func (s *story) moment(at events.Position) moment {
	m := moment{position: at}
	for _, r := range s.all {
		if r.Position.Seq <= at.Seq && r.Time.After(m.time) {
			m.time = r.Time
		}
	}
	return m
}

func (m moment) holds(e events.Recorded) bool {
	if e.Position.Partition == m.position.Partition {
		return e.Position.Seq <= m.position.Seq
	}
	return !e.Time.After(m.time)
}

// inherit adds to a branch the turns that it shares: to then, which is the branch at a moment, as they stood at that
// moment, and to today as they stand now. origins are the sessions of its segments.
func (s *story) inherit(then *session.State, origins []*story, m moment) {
	fork := s.today.Fork()
	if fork.Root == "" || then.Fork() != fork {
		return
	}
	list := fork.Segments()
	past, today := make([]*session.State, len(list)), make([]*session.State, len(list))
	for i, o := range origins {
		past[i], today[i] = o.then(m.holds), o.today
	}
	s.today.Inherit(list, today, math.MaxInt)
	then.InheritThen(past, today)
}
