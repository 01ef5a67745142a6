package jetlog

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// codeInProcess is the server error code of an append whose id belongs to one that is in process.
const codeInProcess = 10158

func inProcess(err error) bool { return wire.APIError(err).ErrorCode == codeInProcess }

// passedOver notices an append that the server takes for being in process, but has passed over. When a stream gets
// replicas, the leader of nats-server 2.15 may propose an append below the end that the stream has reached meanwhile.
// It drops the append without a word, knows its id for two minutes more, and refuses expectations of its subject.
type passedOver struct {
	since time.Time // when the server first said that the append is in process; zero if it did not
	seen  uint64    // what the server had shown then
}

// lost reports whether the append was surely passed over, by an attempt's error: the server still has it in process
// after a while, but has acknowledged what was sent to it later, or nothing at all. A stream's leader takes appends in
// their order, so on a leader that is only slow this is false.
func (o *passedOver) lost(p *partition, err error, while time.Duration) bool {
	switch {
	case !inProcess(err):
		*o = passedOver{}
		return false
	case o.since.IsZero():
		o.since, o.seen = time.Now(), p.seen.Load()
	}
	later := p.sent.Load() > o.since.UnixNano() || p.seen.Load() == o.seen
	return later && time.Since(o.since) >= while
}

// took notes that the server has stored what was sent at some time, and where.
func (p *partition) took(sent time.Time, seq uint64) {
	p.saw(seq)
	if at := sent.UnixNano(); at > p.sent.Load() {
		p.sent.Store(at)
	}
}

// electAgain is the pause between two elections that this process asks for.
const electAgain = 5 * time.Second

// elect has a partition's leader step down, unless this process asked for that a moment ago. The next leader knows the
// ids of stored events only, so the same append under the same id is stored, or found.
func (l *Log) elect(ctx context.Context, p *partition) {
	last, now := p.elected.Load(), time.Now().UnixNano()
	if !p.shared.Load() || now-last < int64(electAgain) || !p.elected.CompareAndSwap(last, now) {
		return
	}
	var out struct {
		Error *jetstream.APIError `json:"error"`
	}
	// If the leader does not hear this, the append is in process still, and asks again.
	_ = l.wire.Call(ctx, "STREAM.LEADER.STEPDOWN."+p.name, nil, &out)
}
