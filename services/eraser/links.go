package eraser

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
)

// links is an index of one partition, made as the eraser looks at the log: where sessions were linked to an identity,
// and where sessions were erased. Each entry is looked up in the log, so that a hash which two ids share does no harm.
// The index is kept in the notes in pieces. A note of its own says how far they reach without a gap, and the eraser
// begins no later than there. Safe for concurrent use.
type links struct {
	mu sync.Mutex
	// piece is what this eraser has looked at and not finished writing down, under a key of its own.
	piece piece
	key   string
	// written is how far the piece was written down, and revision the revision of its note.
	written, revision uint64
}

// piece is the part of the index that stands after a sequence and up to another.
type piece struct {
	Created time.Time `json:"created"`
	After   uint64    `json:"after"`
	UpTo    uint64    `json:"up_to"`
	// Entries are pairs of a hash and a sequence, eight bytes each, big-endian.
	Entries []byte `json:"entries,omitempty"`
}

const (
	entryBytes = 16
	// pieceBytes is when a piece is full; as JSON it takes a third more.
	pieceBytes = 4096 * entryBytes
	// unwritten is how many events may be looked at again after a crash.
	unwritten = 100_000
)

func (p *piece) add(hash, seq uint64) {
	p.Entries = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(p.Entries, hash), seq)
}

func identityHash(id string) uint64 { return hashOf("identity", id) }
func sessionHash(id string) uint64  { return hashOf("session", id) }

func hashOf(kind, id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(kind + "\x00" + id))
	return h.Sum64()
}

// note notes what the events of a batch say, and reports whether it is time to write that down.
func (l *links) note(b projections.Batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.From.Seq > l.piece.UpTo || b.From.Seq < l.piece.After || l.key == "" {
		l.begin(b.From)
	}
	for i := range b.Events {
		switch j := &b.Events[i]; j.Change.Kind {
		case conversation.Linked:
			l.piece.add(identityHash(j.Head.Identity), j.Position.Seq)
		case conversation.Erased:
			l.piece.add(sessionHash(j.SessionID), j.Position.Seq)
		case conversation.Seen, conversation.Duplicate, conversation.Anomaly, conversation.Started,
			conversation.Answered, conversation.Corrected, conversation.TurnGone, conversation.Reset,
			conversation.Refused, conversation.Noted: // are about neither
		}
	}
	l.piece.UpTo = max(l.piece.UpTo, b.To.Seq)
	return len(l.piece.Entries) >= pieceBytes || l.piece.UpTo-l.written >= unwritten
}

// begin begins a piece, under a key that no other eraser has.
func (l *links) begin(at projections.Checkpoint) {
	l.piece = piece{Created: at.Created, After: at.Seq, UpTo: at.Seq}
	l.key, l.written, l.revision = piecesOf(at.Partition)+fmt.Sprint(at.Seq, ".", rand.Text()), at.Seq, 0
}

func piecesOf(partition int) string { return fmt.Sprintf("eraser.links.%d.", partition) }

// save writes down what was looked at, and then how far that reaches.
func (l *links) save(ctx context.Context, notes *jetlog.Notes, partition int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.piece
	if l.key == "" || p.UpTo == l.written {
		return nil
	}
	if len(p.Entries) > 0 {
		revision, err := notes.Write(ctx, l.key, p, l.revision)
		if err != nil {
			return err
		}
		l.revision = revision
	}
	upTo := progress{Created: p.Created, Seq: p.UpTo, Revision: l.revision}
	if err := raise(ctx, notes, coveredKey(partition), p.After, upTo); err != nil {
		return err
	}
	if l.written = p.UpTo; len(p.Entries) >= pieceBytes {
		l.begin(projections.Checkpoint{Partition: partition, Created: p.Created, Seq: p.UpTo})
	}
	return nil
}

// reach returns how far the written pieces and the one that this eraser holds reach together, and the latter.
func (l *links) reach(at progress) (uint64, piece) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.piece
	p.Entries = slices.Clone(p.Entries)
	if l.key == "" || p.After > at.Seq || !p.Created.Equal(at.Created) {
		return at.Seq, p
	}
	return max(at.Seq, p.UpTo), p
}

// indexed is what the index of a partition knows up to a sequence: by hash, the sequences of links and of erasures.
type indexed struct {
	upTo uint64
	seqs map[uint64][]uint64
}

// read returns what the index knows.
func (l *links) read(ctx context.Context, notes *jetlog.Notes, partition int, created time.Time) (indexed, error) {
	// First how far it reaches, and then what it says: so nothing is missed.
	at, _, err := progressOf(ctx, notes, coveredKey(partition), created)
	if err != nil {
		return indexed{}, err
	}
	out := indexed{seqs: map[uint64][]uint64{}}
	upTo, own := l.reach(at)
	out.addAll(own)
	last := uint64(0)
	err = jetlog.EachNote(ctx, notes, piecesOf(partition)+">", func(n jetlog.Note[piece]) {
		last = max(last, n.Revision)
		if n.Value.Created.Equal(created) {
			out.addAll(n.Value)
		}
	})
	if last >= at.Revision {
		out.upTo = upTo
	}
	return out, err
}

func (x indexed) add(hash, seq uint64) { x.seqs[hash] = append(x.seqs[hash], seq) }

func (x indexed) addAll(p piece) {
	for e := range slices.Chunk(p.Entries, entryBytes) {
		x.add(binary.BigEndian.Uint64(e), binary.BigEndian.Uint64(e[8:]))
	}
}

// at returns the sequences under a hash, each once, upwards.
func (x indexed) at(hash uint64) []uint64 {
	return slices.Compact(slices.Sorted(slices.Values(x.seqs[hash])))
}

// erasure returns where a session was erased, as far as the index knows; 0 if it was not.
func (e *Eraser) erasure(ctx context.Context, x indexed, partition int, session string) (uint64, error) {
	for _, seq := range x.at(sessionHash(session)) {
		r, found, err := e.log.At(ctx, events.Position{Partition: partition, Seq: seq})
		if err != nil {
			return 0, err
		}
		if f, ok := r.Fact.(*events.SessionErased); found && ok && f.SessionID == session {
			return seq, nil
		}
	}
	return 0, nil
}
