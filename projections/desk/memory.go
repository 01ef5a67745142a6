package desk

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events/jetlog"
)

// InMemory makes a desk that ends with the process, for a view whose rows do so too. It keeps the newest 1,000 letters
// of a partition.
func InMemory() *Desk {
	return New(&shelf{notes: map[string]jetlog.Note[json.RawMessage]{}}).Bounded(lettersInMemory)
}

// shelf is Notes in memory.
type shelf struct {
	mu       sync.Mutex
	revision uint64
	notes    map[string]jetlog.Note[json.RawMessage]
}

const lettersInMemory = 1000

func (s *shelf) Read(_ context.Context, key string, into any) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, found := s.notes[key]
	if !found {
		return 0, nil
	}
	return n.Revision, json.Unmarshal(n.Value, into)
}

func (s *shelf) Write(_ context.Context, key string, value any, revision uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notes[key].Revision != revision {
		return 0, jetlog.ErrConflict
	}
	err := s.put(key, value)
	return s.notes[key].Revision, err
}

func (s *shelf) Put(_ context.Context, key string, value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(key, value)
}

func (s *shelf) put(key string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	s.revision++
	s.notes[key] = jetlog.Note[json.RawMessage]{Key: key, Value: raw, Revision: s.revision, At: time.Now()}
	return nil
}

func (s *shelf) Commit(_ context.Context, key string, value any, guard string, revision uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notes[guard].Revision != revision {
		return jetlog.ErrConflict
	}
	return s.put(key, value)
}

func (s *shelf) Remove(_ context.Context, key, guard string, revision uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notes[guard].Revision != revision {
		return jetlog.ErrConflict
	}
	delete(s.notes, key)
	return nil
}

func (s *shelf) Drop(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.notes, key)
	return nil
}

func (s *shelf) Each(_ context.Context, filter string, f func(jetlog.Note[json.RawMessage]) error) error {
	s.mu.Lock()
	found := s.sorted(filter)
	s.mu.Unlock()
	for _, n := range found {
		if err := f(n); err != nil {
			return err
		}
	}
	return nil
}

// sorted returns the notes under a filter such as "a.>", in the order of their revisions.
func (s *shelf) sorted(filter string) (out []jetlog.Note[json.RawMessage]) {
	for key, n := range s.notes {
		if strings.HasPrefix(key, strings.TrimSuffix(filter, ">")) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b jetlog.Note[json.RawMessage]) int { return cmp.Compare(a.Revision, b.Revision) })
	return out
}
