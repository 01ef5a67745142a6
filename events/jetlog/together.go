package jetlog

import (
	"context"
	"slices"
	"sync"

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

// together sends the appends of several events to one stream. Appends that come while a batch is on its way wait, and
// go as one atomic batch after it: the server stages each batch in a store of its own, which on a single server costs
// several fsyncs, however little is in it (docs/decisions.md#appends-share-a-batch). It has no goroutine: one of the
// callers sends for all.
type together struct {
	mu      sync.Mutex
	sending bool
	waiting []*joined
}

// joined is an append that waits for its batch.
type joined struct {
	msgs   []*nats.Msg
	size   int
	answer chan joinedAnswer
}

// joinedAnswer is what a batch came to for one append; with lead set it is not answered yet, and the caller must send
// the next batch, which has its append.
type joinedAnswer struct {
	ack  Ack
	err  error
	lead bool
}

// join adds an append, and reports whether its caller must send the next batch.
func (t *together) join(j *joined) (lead bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = append(t.waiting, j)
	lead = !t.sending
	t.sending = true
	return lead
}

// leave takes out an append that waits, and reports whether it was still waiting. An append that was told to lead is
// not left: it must lead.
func (t *together) leave(j *joined) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, w := range t.waiting {
		if w == j && len(j.answer) == 0 {
			t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// next takes the appends of the next batch: the first that wait, as far as they may share one. The server refuses a
// batch with an id that comes twice, or with an expectation at a message which is not its subject's first.
func (t *together) next() []*joined {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, count, size := 0, 0, 0
	ids, subjects := map[string]bool{}, map[string]bool{}
	for _, j := range t.waiting {
		count, size = count+len(j.msgs), size+j.size
		if n > 0 && (count > maxBatch || size > batchBytes || j.clashes(ids, subjects)) {
			break
		}
		for _, m := range j.msgs {
			ids[m.Header[jetstream.MsgIDHeader][0]], subjects[m.Subject] = true, true
		}
		n++
	}
	group := t.waiting[:n:n]
	t.waiting = append([]*joined(nil), t.waiting[n:]...)
	return group
}

// clashes reports whether the server would refuse an append in a batch with earlier ones that have these ids and
// subjects. Such a batch would be sent again in halves.
func (j *joined) clashes(ids, subjects map[string]bool) bool {
	return slices.ContainsFunc(j.msgs, func(m *nats.Msg) bool {
		expects := m.Header[jetstream.ExpectedLastSubjSeqHeader] != nil
		return ids[m.Header[jetstream.MsgIDHeader][0]] || expects && subjects[m.Subject]
	})
}

// done ends the sending of a batch, and lets the first of those that wait send the next.
func (t *together) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.sending = false
		return
	}
	t.waiting[0].answer <- joinedAnswer{lead: true}
}

// appendBatch appends atomically, perhaps in one batch with other appends.
func (l *Log) appendBatch(ctx context.Context, p *partition, msgs []*nats.Msg) (Ack, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Deadline/attempts)
	defer cancel()
	j := &joined{msgs: msgs, answer: make(chan joinedAnswer, 1)}
	for _, m := range msgs {
		j.size += m.Size()
	}
	if p.together.join(j) {
		l.lead(ctx, p)
	}
	var a joinedAnswer
	select {
	case a = <-j.answer:
	case <-ctx.Done():
		if p.together.leave(j) {
			return Ack{}, ctx.Err()
		}
		a = <-j.answer
	}
	if a.lead {
		l.lead(ctx, p)
		a = <-j.answer
	}
	return a.ack, a.err
}

// lead sends one batch. Others wait for it too, so it does not end with its caller.
func (l *Log) lead(ctx context.Context, p *partition) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.Deadline/attempts)
	defer cancel()
	defer p.together.done()
	l.sendTogether(ctx, p, p.together.next())
}

// sendTogether sends appends as one atomic batch, and answers each. If the server refuses a batch, it has stored none
// of it, and does not say which append it refuses. Then each half is sent by itself.
func (l *Log) sendTogether(ctx context.Context, p *partition, group []*joined) {
	last, err := l.publishBatch(ctx, p, group)
	if len(group) > 1 && err != nil && classify(err) != nil {
		l.sendTogether(ctx, p, group[:len(group)/2])
		l.sendTogether(ctx, p, group[len(group)/2:])
		return
	}
	if err == nil {
		p.saw(last)
	}
	// The events of a batch stand side by side, so the commit's sequence is enough to know all of theirs.
	for i := len(group) - 1; i >= 0; i-- {
		group[i].answer <- joinedAnswer{ack: Ack{Position: events.Position{Partition: p.number, Seq: last}}, err: err}
		last -= uint64(len(group[i].msgs))
	}
}

// publishBatch publishes an atomic batch, and returns the sequence of its last message.
func (l *Log) publishBatch(ctx context.Context, p *partition, group []*joined) (uint64, error) {
	// The answer to the commit is the answer to all messages, so nothing waits before it.
	batch, err := jetstreamext.NewBatchPublisher(l.wire.JS, jetstreamext.BatchFlowControl{})
	if err != nil {
		return 0, err
	}
	for i, j := range group {
		for k, m := range j.msgs {
			m = l.copyMsg(p, m)
			if i == len(group)-1 && k == len(j.msgs)-1 {
				ack, err := batch.CommitMsg(ctx, m)
				if err != nil {
					return 0, err
				}
				return ack.Sequence, nil
			}
			if err := batch.AddMsg(m); err != nil {
				return 0, err
			}
		}
	}
	return 0, nil // a group is never empty
}
