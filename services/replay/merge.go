package replay

import (
	"container/heap"
	"context"
	"iter"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// merge gives the events of several sources by recorded time, and keeps the order of
// each source whatever its clock did.
type merge struct {
	sources []source
	open    bool
	heads   byTime
}

// source gives the backlog of a partition in order, and what follows it.
type source interface {
	// more makes sure that there is a next event, and tells whether there is one.
	more(ctx context.Context) (bool, error)
	// head looks at the next event, which more has found; take takes it.
	head() *entry
	take() entry
	follower() *backlog
	close()
}

// next gives the next event, and false at the end. It may be called again after an
// error of ctx.
func (m *merge) next(ctx context.Context) (entry, bool, error) {
	for !m.open {
		if len(m.heads) == len(m.sources) {
			m.begin()
			break
		}
		s := m.sources[len(m.heads)]
		more, err := s.more(ctx)
		if err != nil {
			return entry{}, false, err
		}
		m.heads = append(m.heads, head{source: s, there: more})
	}
	for len(m.heads) > 0 {
		first := &m.heads[0]
		if first.there {
			first.there = false
			return first.source.take(), true, nil
		}
		more, err := first.source.more(ctx)
		if err != nil {
			return entry{}, false, err
		}
		if first.there = more; !more {
			heap.Pop(&m.heads)
			continue
		}
		heap.Fix(&m.heads, 0)
	}
	return entry{}, false, nil
}

func (m *merge) begin() {
	m.open = true
	there := m.heads[:0]
	for _, h := range m.heads {
		if h.there {
			there = append(there, h)
		}
	}
	m.heads = there
	heap.Init(&m.heads)
}

func (m *merge) close() {
	for _, s := range m.sources {
		s.close()
	}
}

// head is a source with the next event there.
type head struct {
	source source
	there  bool
}

type byTime []head

func (h byTime) Len() int { return len(h) }
func (h byTime) Less(i, j int) bool {
	a, b := h[i].source.head(), h[j].source.head()
	if c := a.time().Compare(b.time()); c != 0 {
		return c < 0
	}
	return a.position().Partition < b.position().Partition
}
func (h byTime) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *byTime) Push(x any)   { *h = append(*h, x.(head)) }
func (h *byTime) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// openSources makes the sources of the backlog; they read when they are asked.
func (s *stream) openSources(ctx context.Context, heads []uint64) {
	log := s.replay.log
	if id := s.q.SessionID; id != "" {
		k := log.Partition(id)
		one := &sessionSource{end: s.end[k], rest: backlog{
			log: log, partition: k, after: s.at[k], options: jetlog.TailOptions{Subject: events.SessionSubject(id)},
		}}
		one.pull, one.stop = iter.Pull2(log.Session(ctx, id, s.at[k], s.end[k]))
		s.merge.sources = []source{one}
		return
	}
	// Everything is printed, mostly: then the tail decodes ahead.
	all := len(s.q.Types) == 0 && s.q.IdentityID == ""
	for k := range heads {
		s.merge.sources = append(s.merge.sources, &partitionSource{backlog: backlog{
			log: log, partition: k, after: s.at[k], end: s.end[k], options: jetlog.TailOptions{Decode: all},
		}})
	}
}

// partitionSource reads a whole partition.
type partitionSource struct {
	backlog
	next entry
}

func (p *partitionSource) head() *entry {
	p.next = entry{message: p.ready[0]}
	return &p.next
}
func (p *partitionSource) take() entry        { return entry{message: p.backlog.take()} }
func (p *partitionSource) follower() *backlog { return &p.backlog }

// sessionSource reads one session's subject alone.
type sessionSource struct {
	end  uint64
	rest backlog

	pull  func() (events.Recorded, error, bool)
	stop  func()
	ready *entry
}

func (p *sessionSource) more(ctx context.Context) (bool, error) {
	if p.ready != nil {
		return true, nil
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	e, err, there := p.pull()
	if err != nil || !there {
		return false, err
	}
	p.ready = &entry{decoded: &e}
	return true, nil
}

func (p *sessionSource) head() *entry { return p.ready }

func (p *sessionSource) take() entry {
	e := *p.ready
	p.ready, p.rest.after = nil, e.decoded.Position.Seq
	return e
}

// follower goes on where the backlog ends, whether or not the session had events up
// to there.
func (p *sessionSource) follower() *backlog {
	p.rest.after = max(p.rest.after, p.end)
	return &p.rest
}

func (p *sessionSource) close() {
	p.stop()
	p.rest.close()
}
