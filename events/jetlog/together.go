package jetlog

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/turnledger/turnledger/events"
)

const (
	// maxBatch is how many messages the server takes in one atomic batch.
	maxBatch = 1000
	// batchBytes bounds the bytes of appends that share a batch.
	batchBytes = 4 << 20
)

// joined is an append of several events to one stream. Appends that come while a batch is on its way wait, and go as
// one atomic batch after it: the server stages each batch in a store of its own, which on a single server costs several
// fsyncs, however little is in it (docs/decisions.md#appends-share-a-batch).
type joined struct {
	msgs []*nats.Msg
	size int
	ack  Ack
	err  error
}

// shareBatch returns how many of the appends that wait may share a batch. The server refuses a batch with an id that
// comes twice, or with an expectation at a message which is not its subject's first.
func shareBatch(waiting []*joined) (n int) {
	count, size := 0, 0
	ids, subjects := map[string]bool{}, map[string]bool{}
	for _, j := range waiting {
		count, size = count+len(j.msgs), size+j.size
		if n > 0 && (count > maxBatch || size > batchBytes || j.clashes(ids, subjects)) {
			break
		}
		for _, m := range j.msgs {
			ids[m.Header[jetstream.MsgIDHeader][0]], subjects[m.Subject] = true, true
		}
		n++
	}
	return n
}

// clashes reports whether the server would refuse an append in a batch with earlier ones that have these ids and
// subjects. Such a batch would be sent again in halves.
func (j *joined) clashes(ids, subjects map[string]bool) bool {
	return slices.ContainsFunc(j.msgs, func(m *nats.Msg) bool {
		expects := m.Header[jetstream.ExpectedLastSubjSeqHeader] != nil
		return ids[m.Header[jetstream.MsgIDHeader][0]] || expects && subjects[m.Subject]
	})
}

// appendBatch appends atomically, perhaps in one batch with other appends. It waits for those before it as long as ctx
// lasts, since it keeps its place among those that wait.
func (l *Log) appendBatch(ctx context.Context, p *partition, msgs []*nats.Msg) (Ack, error) {
	j := &joined{msgs: msgs, err: ErrUnavailable}
	for _, m := range msgs {
		j.size += m.Size()
	}
	err := p.together.Do(ctx, j, shareBatch, func(group []*joined, _ func()) {
		l.sendTogether(context.WithoutCancel(ctx), p, group)
	})
	if err != nil {
		return Ack{}, err
	}
	return j.ack, j.err
}

// sendTogether sends appends as one atomic batch, and answers each. If the server refuses a batch, or has a part of it
// in process, it has stored none of it, and does not say which append is the reason. Then each half is sent by itself.
func (l *Log) sendTogether(ctx context.Context, p *partition, group []*joined) {
	sent := time.Now()
	last, err := l.publishBatch(ctx, p, group)
	if len(group) > 1 && err != nil && (classify(err) != nil || inProcess(err)) {
		l.sendTogether(ctx, p, group[:len(group)/2])
		l.sendTogether(ctx, p, group[len(group)/2:])
		return
	}
	if err == nil {
		p.took(sent, last)
	}
	// The events of a batch stand side by side, so the commit's sequence is enough to know all of theirs.
	for _, j := range slices.Backward(group) {
		j.ack, j.err = Ack{Position: events.Position{Partition: p.number, Seq: last}}, err
		last -= uint64(len(j.msgs))
	}
}

// publishBatch publishes an atomic batch, and returns the sequence of its last message.
func (l *Log) publishBatch(ctx context.Context, p *partition, group []*joined) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Deadline/attempts)
	defer cancel()
	// The answer to the commit is the answer to all messages, so nothing waits before it.
	batch, err := jetstreamext.NewBatchPublisher(l.wire.JS, jetstreamext.BatchFlowControl{})
	if err != nil {
		return 0, err
	}
	for i, j := range group {
		for k, m := range j.msgs {
			m = l.addressed(p, m)
			// The batch's own headers are set anew when the message is sent again.
			delete(m.Header, jetstreamext.BatchCommitHeader)
			if i == len(group)-1 && k == len(j.msgs)-1 {
				ack, err := batch.CommitMsg(ctx, m)
				if err != nil {
					return 0, err
				}
				began := ack.Sequence + 1 - uint64(ack.BatchSize) //nolint:gosec // a count
				return ack.Sequence, l.whole(ctx, p, group[0].msgs[0], began)
			}
			if err := batch.AddMsg(m); err != nil {
				return 0, err
			}
		}
	}
	return 0, nil // a group is never empty
}

// errPart: a batch was acknowledged that is not there from its first message on.
var errPart = errors.New("the server has acknowledged a batch of which a part is missing")

// whole reports by its error whether a batch that a cluster has acknowledged is there from its first message on, at a
// sequence. When a stream gets replicas, the leader of nats-server 2.15 may pass over the first messages of a batch
// (passedOver), and store and acknowledge the others. The appends are then tried again, each as if its answer was lost.
func (l *Log) whole(ctx context.Context, p *partition, first *nats.Msg, at uint64) error {
	if !p.shared.Load() {
		return nil
	}
	stored, err := l.message(ctx, p, map[string]any{"seq": at})
	if err != nil {
		return err
	}
	if stored == nil {
		return errPart
	}
	header, err := nats.DecodeHeadersMsg(stored.Header)
	if err != nil || header.Get(jetstreamext.BatchSeqHeader) != "1" ||
		header.Get(jetstreamext.BatchIDHeader) != first.Header.Get(jetstreamext.BatchIDHeader) {
		return errPart
	}
	return nil
}
