package indextest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// Memory is a store of an index in memory, for tests of the index itself. It passes Contract, as Weaviate does. Safe
// for concurrent use.
type Memory struct {
	mu          sync.Mutex
	collections map[string]*kept
	served      string // what the alias points to
	saved       *Memory
	away        bool
}

// kept is a collection with its objects. The first vector of a half sets the length of all.
type kept struct {
	mark    string
	objects map[uuid.UUID]index.Object
	bare    map[uuid.UUID]bool
	lengths map[projections.Half]int
}

// NewMemory makes an empty store.
func NewMemory() *Memory { return &Memory{collections: map[string]*kept{}} }

// Store returns the store of an index.
func (m *Memory) Store() index.Store { return index.Store{Collections: m, Objects: m} }

// Empty removes all that the store holds.
func (m *Memory) Empty() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.collections, m.served = map[string]*kept{}, ""
}

// Save copies all that the store holds, and Back has it hold the copy.
func (m *Memory) Save() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saved = &Memory{collections: map[string]*kept{}, served: m.served}
	for name, c := range m.collections {
		m.saved.collections[name] = &kept{c.mark, maps.Clone(c.objects), maps.Clone(c.bare), maps.Clone(c.lengths)}
	}
}

// Back returns to what Save has copied.
func (m *Memory) Back() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.collections, m.served, m.saved = m.saved.collections, m.saved.served, nil
}

// Away has the store answer no more.
func (m *Memory) Away() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = true
}

var (
	errAway    = projections.Unavailable(errors.New("the store is away"))
	errUnknown = projections.Unavailable(errors.New("the store has no such collection"))
	errLength  = projections.Unavailable(errors.New("vectors of the collection have another length"))
)

// do does something to the store, one call after the other.
func (m *Memory) do(ctx context.Context, call func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return projections.Unavailable(err)
	}
	if m.away {
		return errAway
	}
	return call()
}

// in does something to a collection, whose name may be the alias.
func (m *Memory) in(ctx context.Context, name string, call func(*kept) error) error {
	return m.do(ctx, func() error {
		if name == index.Alias {
			name = m.served
		}
		c, ok := m.collections[name]
		if !ok {
			return errUnknown
		}
		return call(c)
	})
}

// List implements index.Collections.
func (m *Memory) List(ctx context.Context) (out []index.Collection, err error) {
	err = m.do(ctx, func() error {
		for _, name := range slices.Sorted(maps.Keys(m.collections)) {
			if strings.HasPrefix(name, index.Prefix) {
				out = append(out, index.Collection{Name: name, Mark: m.collections[name].mark})
			}
		}
		return nil
	})
	return out, err
}

// Create implements index.Collections.
func (m *Memory) Create(ctx context.Context, c index.Collection) error {
	return m.do(ctx, func() error {
		if m.collections[c.Name] != nil {
			return projections.Unavailable(errors.New("the store has a collection of this name"))
		}
		m.collections[c.Name] = &kept{
			c.Mark, map[uuid.UUID]index.Object{}, map[uuid.UUID]bool{}, map[projections.Half]int{},
		}
		return nil
	})
}

// Drop implements index.Collections.
func (m *Memory) Drop(ctx context.Context, name string) error {
	return m.do(ctx, func() error {
		delete(m.collections, name)
		return nil
	})
}

// Serve implements index.Collections.
func (m *Memory) Serve(ctx context.Context, name string) error {
	return m.do(ctx, func() error {
		if m.collections[name] == nil {
			return errUnknown
		}
		m.served = name
		return nil
	})
}

// Put implements index.Objects. It refuses objects with a vector of another length.
func (m *Memory) Put(ctx context.Context, collection string, objects []index.Object) error {
	if len(objects) == 0 {
		return nil
	}
	return m.in(ctx, collection, func(c *kept) error {
		var refused []uuid.UUID
		for _, o := range objects {
			if !c.takes(projections.QuestionHalf, o.Question.Vector) ||
				!c.takes(projections.AnswerHalf, o.Answer.Vector) {
				refused = append(refused, o.ID)
				continue
			}
			c.bare[o.ID] = o.Bare()
			for _, h := range []*index.Half{&o.Question, &o.Answer} {
				*h = index.Half{Digest: h.Digest, Vector: slices.Clone(h.Vector)}
			}
			o.CreatedAt = o.CreatedAt.UTC()
			c.objects[o.ID] = o
		}
		if refused != nil {
			return &index.Refused{IDs: refused}
		}
		return nil
	})
}

// takes reports whether a vector has the length of the others.
func (c *kept) takes(half projections.Half, v []float32) bool {
	if v == nil {
		return true
	}
	c.lengths[half] = cmp.Or(c.lengths[half], len(v))
	return c.lengths[half] == len(v)
}

// Delete implements index.Objects.
func (m *Memory) Delete(ctx context.Context, collection string, ids []uuid.UUID) error {
	return m.in(ctx, collection, func(c *kept) error {
		for _, id := range ids {
			delete(c.objects, id)
			delete(c.bare, id)
		}
		return nil
	})
}

// Near implements index.Objects. Each search is exact.
func (m *Memory) Near(ctx context.Context, collection string, n index.Near) (out []projections.Hit, err error) {
	err = m.in(ctx, collection, func(c *kept) error {
		if length := c.lengths[n.Half]; length != 0 && length != len(n.Vector) {
			return errLength
		}
		for _, o := range c.objects {
			v := o.Question.Vector
			if n.Half == projections.AnswerHalf {
				v = o.Answer.Vector
			}
			if v == nil || !passes(&o, n) {
				continue
			}
			out = append(out, projections.Hit{
				TurnID: o.ID, SessionID: o.Session, IdentityID: o.Identity, Half: n.Half, Score: cosine(v, n.Vector),
			})
		}
		return nil
	})
	slices.SortFunc(out, func(a, b projections.Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), bytes.Compare(a.TurnID[:], b.TurnID[:]))
	})
	return out[:min(len(out), n.Limit)], err
}

// passes reports whether a search looks at an object: Among is asked for alone.
func passes(o *index.Object, n index.Near) bool {
	if len(n.Among) > 0 {
		return slices.Contains(n.Among, o.ID)
	}
	return (n.IdentityID == "" || o.Identity == n.IdentityID) && (n.SessionID == "" || o.Session == n.SessionID) &&
		(n.Since.IsZero() || !o.CreatedAt.Before(n.Since)) && (n.Until.IsZero() || o.CreatedAt.Before(n.Until))
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i, x := range a {
		y := b[i]
		ab, aa, bb = ab+float64(x)*float64(y), aa+float64(x)*float64(x), bb+float64(y)*float64(y)
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

// ByID implements index.Objects.
func (m *Memory) ByID(
	ctx context.Context, collection string, ids []uuid.UUID, vectors index.Vectors,
) (out []index.Object, err error) {
	return m.some(ctx, collection, len(ids), vectors, func(_ *kept, o *index.Object) bool {
		return slices.Contains(ids, o.ID)
	})
}

// Page implements index.Objects. Objects are in the order of their ids.
func (m *Memory) Page(ctx context.Context, collection string, after uuid.UUID, limit int) ([]index.Object, error) {
	return m.some(ctx, collection, limit, index.WithoutVectors, func(_ *kept, o *index.Object) bool {
		return bytes.Compare(o.ID[:], after[:]) > 0
	})
}

// Bare implements index.Objects.
func (m *Memory) Bare(ctx context.Context, collection string, partition, limit int) ([]index.Object, error) {
	return m.some(ctx, collection, limit, index.WithoutVectors, func(c *kept, o *index.Object) bool {
		return o.Partition == partition && c.bare[o.ID]
	})
}

// some returns up to limit objects that are chosen, in the order of their ids.
func (m *Memory) some(
	ctx context.Context, collection string, limit int, vectors index.Vectors, chosen func(*kept, *index.Object) bool,
) (out []index.Object, err error) {
	err = m.in(ctx, collection, func(c *kept) error {
		for _, o := range c.objects {
			if !chosen(c, &o) {
				continue
			}
			if vectors == index.WithoutVectors {
				o.Question.Vector, o.Answer.Vector = nil, nil
			}
			out = append(out, o)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b index.Object) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return out[:min(len(out), limit)], err
}
