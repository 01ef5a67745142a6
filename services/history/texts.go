package history

import (
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/turnledger/turnledger/events"
)

// Bounds of the texts of turns that were listed lately, in bytes of their events. A client that lists a whole
// conversation before each of its calls reads the same pages again and again.
const (
	mostTexts      = 16 << 20 // of all sessions
	mostOfASession = 1 << 20
	textsTime      = 10 * time.Minute // after the last use
)

// texts are facts of one session by the sequences of their events, as the log has them. Which of them count is not said
// here: a reader first decides that on the session's state. Safe for concurrent use.
type texts struct {
	mu    sync.Mutex
	of    map[uint64]text
	bytes int
}

// text is a fact, and an estimate of the bytes that it takes.
type text struct {
	events.Fact
	bytes int
}

func newTexts() *otter.Cache[string, *texts] {
	return otter.Must(&otter.Options[string, *texts]{
		MaximumWeight:    mostTexts,
		ExpiryCalculator: otter.ExpiryAccessing[string, *texts](textsTime),
		Executor:         func(work func()) { work() },
		Weigher:          func(id string, t *texts) uint32 { return t.weight(id) },
	})
}

// textsOf returns the texts of a session. A reader asks for them before it looks at the session's state. If a text is
// withdrawn later, the reader adds what it reads to texts that nobody else gets.
func (s *Service) textsOf(id string) *texts {
	t, _ := s.listed.ComputeIfAbsent(id, func() (*texts, bool) { return &texts{}, false })
	return t
}

func (t *texts) weight(id string) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return uint32(256 + len(id) + t.bytes) //nolint:gosec // far below 2^32
}

// have returns the facts of sequences, and the sequences of which it has none.
func (t *texts) have(seqs []uint64) (have map[uint64]events.Fact, lacks []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	have = map[uint64]events.Fact{}
	for _, seq := range seqs {
		if one, has := t.of[seq]; has {
			have[seq] = one.Fact
		} else {
			lacks = append(lacks, seq)
		}
	}
	return have, lacks
}

// keep keeps the facts of events. If a session has too many, any of them go.
func (t *texts) keep(read []events.Recorded) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[uint64]text{}
	}
	for _, e := range read {
		one := text{e.Fact, 256 + 2*len(e.Body)} // most bodies hold a text twice
		t.bytes += one.bytes - t.of[e.Position.Seq].bytes
		t.of[e.Position.Seq] = one
	}
	for seq, one := range t.of {
		if t.bytes <= mostOfASession {
			break
		}
		delete(t.of, seq)
		t.bytes -= one.bytes
	}
}
