package read

import (
	"context"
	"slices"
	"sync"

	"github.com/turnledger/turnledger/events"
)

// Bounds of the texts of turns that were listed lately, in bytes of their events. A client that lists a whole
// conversation before each of its calls reads the same pages again and again.
const (
	mostTexts      = 16 << 20 // of all sessions
	mostOfASession = 1 << 20
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

// facts returns the facts that events of a session brought, by their sequences. It reads those from the log that were
// not read lately. A fact that has left the log is not among them: an erasure came first.
func (r *Reader) facts(ctx context.Context, id string, kept *texts, seqs []uint64) (map[uint64]events.Fact, error) {
	have, lacks := kept.have(seqs)
	partition := r.log.Partition(id)
	read, err := r.log.Some(ctx, partition, lacks)
	for _, seq := range lacks {
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(read, func(e events.Recorded) bool { return e.Position.Seq == seq }) {
			continue
		}
		var e events.Recorded
		var found bool
		if e, found, err = r.log.At(ctx, events.Position{Partition: partition, Seq: seq}); found {
			read = append(read, e) // a replica was behind
		}
	}
	read = slices.DeleteFunc(read, func(e events.Recorded) bool { return e.SessionID != id }) // of another stream
	for _, e := range read {
		have[e.Position.Seq] = e.Fact
	}
	if len(read) > 0 {
		r.texts.grown(id, kept, kept.keep(read))
	}
	return have, err
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

// keep keeps the facts of events, and returns how many bytes all take. If a session has too many, any of them go.
func (t *texts) keep(read []events.Recorded) int {
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
	return t.bytes
}
