package jetlog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/internal/await"
	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
)

// Append is one append to the log: facts of one session, or of several in one partition. Several facts are appended
// atomically.
type Append struct {
	Facts []events.Fact
	// Expect, if set, is the sequence that must be the session's last.
	Expect *uint64
	// BeginsOthers: the sessions that come after the first one must have no events.
	BeginsOthers bool
	// Salt makes the Nats-Msg-Id differ from the event id. It is needed if the server still remembers the id of an
	// event that had no effect.
	Salt string
	// Calls, if set, are the values of events.HeaderCall, one for each fact.
	Calls []string
}

// Ack is the position of an append's last event. With Duplicate, an event with the same id was in the log already, at
// Position, and the append wrote nothing.
type Ack struct {
	Position  events.Position
	Duplicate bool
}

// Append writes to the log. It returns when the server has the events; Durable returns when the disk has them. While
// the outcome is unknown (timeout, no responders, busy), Append tries again with the same event ids. If an earlier
// attempt was stored, Append finds it, and does not report a duplicate. At the deadline it fails with ErrUnavailable,
// unless the partition has taken other events meanwhile: then the server is slow and not silent, and Append goes on
// until ctx ends, for a minute at most. If the server takes no writes, it fails at once with ErrNoWrites. If an
// expectation did not hold, it fails with a *Conflict. If an event is too large, it fails with ErrTooLarge, and nothing
// was written.
func (l *Log) Append(ctx context.Context, a Append) (ack Ack, err error) {
	msgs, p, err := l.encode(a)
	if err != nil {
		return Ack{}, fmt.Errorf("append: %w", err)
	}
	mine := rand.Text()
	for _, m := range msgs {
		m.Header[appendHeader] = []string{mine}
	}
	ctx, ended := traced(ctx, p, msgs)
	defer func() { ended(ack, err) }()
	seen := p.seen.Load()
	ack, tries, err := l.send(ctx, p, msgs)
	if err == nil && !ack.Duplicate && ack.Position.Seq < seen+uint64(len(msgs)) {
		return Ack{}, fmt.Errorf("append: %w: %w: stream %s took an event at %d, and had reached %d before: "+
			"it was restored while it was in use: start this process again",
			ErrUnavailable, ErrStream, p.name, ack.Position.Seq, seen)
	}
	if tries > 1 && (ack.Duplicate || errors.Is(err, ErrConflict) || errors.Is(err, ErrBatchDuplicate)) {
		// Perhaps an earlier attempt was stored, and its answer lost.
		ctx, cancel := context.WithTimeout(ctx, l.cfg.Deadline)
		defer cancel()
		if own, ok := l.own(ctx, p, a, ack, msgs[0], seen); ok {
			return own, nil
		}
	}
	return ack, err
}

// longest is how long an append may take. It is shorter than the time for which the server knows an event's id.
const longest = time.Minute

// send publishes messages until the server has them, until ctx ends, or for as long as an append may take, and returns
// the number of attempts. Of a server that takes nothing at all it waits no longer than the deadline.
func (l *Log) send(ctx context.Context, p *partition, msgs []*nats.Msg) (ack Ack, tries int, err error) {
	until := time.Now().Add(max(longest, l.cfg.Deadline))
	for took := true; took; {
		before, n := p.seen.Load(), 0
		once, cancel := context.WithTimeout(ctx, min(l.cfg.Deadline, time.Until(until)))
		ack, n, err = l.sendOnce(once, p, msgs)
		tries += n
		took = errors.Is(err, ErrUnavailable) && once.Err() != nil && ctx.Err() == nil && p.seen.Load() > before &&
			time.Now().Before(until)
		cancel()
	}
	return ack, tries, err
}

func (l *Log) sendOnce(ctx context.Context, p *partition, msgs []*nats.Msg) (ack Ack, tries int, err error) {
	if l.stuck.Load() {
		if err := l.writable(ctx, p, nil); err != nil {
			return Ack{}, 0, fmt.Errorf("append: %w", err)
		}
	}
	var over passedOver
	ack, err = retry(ctx, func() (ack Ack, err error) {
		tries++
		if len(msgs) == 1 {
			ack, err = l.appendOne(ctx, p, msgs[0])
		} else {
			ack, err = l.appendBatch(ctx, p, msgs)
		}
		if over.lost(p, err, 2*l.cfg.Deadline/attempts) {
			l.elect(ctx, p)
		}
		if err != nil && classify(err) == nil {
			err = l.writable(ctx, p, err)
		}
		return ack, err
	})
	return ack, tries, err
}

// Writable returns nil if the embedded server takes writes, and the reason if it takes none. Callers that wait share
// one question. A server whose disk hangs does not answer: then Writable returns ctx's error.
func (l *Log) Writable(ctx context.Context) error {
	if l.cfg.Writable == nil {
		return nil
	}
	_, err := l.writes.Wait(ctx)
	return err
}

// writable returns the error of an attempt whose outcome is unknown or busy, or ErrNoWrites if the server is known to
// take no writes: a server whose disk is full does not answer writes, but works otherwise.
func (l *Log) writable(ctx context.Context, p *partition, err error) error {
	if noRoom(err) && !p.shared.Load() {
		return fmt.Errorf("%w: %w", ErrNoWrites, err)
	}
	if why := l.Writable(ctx); why != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", ErrNoWrites, why)
	}
	return err
}

// appendHeader distinguishes the appends of one event id.
const appendHeader = "Turnledger-Append"

// own finds the first event of this append, if an earlier attempt has written it: at the sequence from which the server
// knows the event's id, behind the sequence that the append expected, or behind what the server had shown before the
// append.
func (l *Log) own(
	ctx context.Context, p *partition, a Append, ack Ack, first *nats.Msg, seen uint64,
) (Ack, bool) {
	request := map[string]any{"seq": seen + 1, "next_by_subj": first.Subject}
	tries := ownTries
	switch {
	case ack.Duplicate:
		request, tries = map[string]any{"seq": ack.Position.Seq}, 1
	case a.Expect != nil:
		request["seq"], tries = *a.Expect+1, 1
	}
	for range tries {
		m, err := l.message(ctx, p, request)
		if err != nil || m == nil {
			return Ack{}, false
		}
		header, err := nats.DecodeHeadersMsg(m.Header)
		if err == nil && header.Get(appendHeader) == first.Header.Get(appendHeader) &&
			header.Get(events.HeaderID) == first.Header.Get(events.HeaderID) {
			last := m.Seq + uint64(len(a.Facts)) - 1
			p.saw(last)
			return Ack{Position: events.Position{Partition: p.number, Seq: last}}, true
		}
		request["seq"] = m.Seq + 1
	}
	return Ack{}, false
}

// ownTries is how many events that others wrote to the session since an append began are passed to find its own.
const ownTries = 64

// Durable blocks until the event at a position is on disk. It fails with ErrStream if the log does not reach there: the
// caller has the position from another log.
func (l *Log) Durable(ctx context.Context, at events.Position) error {
	p, err := l.partition(at.Partition)
	if err != nil {
		return err
	}
	switch reached, err := l.reaches(ctx, p, at.Seq); {
	case err != nil:
		return err
	case !reached:
		return fmt.Errorf("%w: stream %s ends before %d, which was read from another: %s", ErrStream, p.name, at.Seq,
			startAgain)
	}
	return p.gate.Wait(ctx, await.Mark(at.Seq))
}

func (l *Log) encode(a Append) (msgs []*nats.Msg, p *partition, err error) {
	if len(a.Facts) == 0 {
		return nil, nil, errors.New("there is nothing to append")
	}
	now := time.Now() // one for all
	for i, f := range a.Facts {
		m, of, err := l.encodeFact(f, a.Salt, now)
		if err != nil {
			return nil, nil, err
		}
		if len(a.Calls) > 0 {
			m.Header[events.HeaderCall] = []string{a.Calls[i]}
		}
		if p != nil && p != of {
			return nil, nil, errors.New("facts of several partitions can't be appended at once")
		}
		if last, expects := a.expects(msgs, m.Subject); expects {
			m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(last, 10)}
		}
		if err := l.measure(m); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.Type(), err)
		}
		msgs, p = append(msgs, m), of
	}
	return msgs, p, nil
}

// expects returns the last sequence that the append expects of a subject, at the subject's first message. before are
// the messages that come before it.
func (a Append) expects(before []*nats.Msg, subject string) (last uint64, expects bool) {
	switch {
	case len(before) == 0 && a.Expect != nil:
		return *a.Expect, true
	case len(before) == 0 || !a.BeginsOthers:
		return 0, false
	default:
		return 0, !slices.ContainsFunc(before, func(m *nats.Msg) bool { return m.Subject == subject })
	}
}

func (l *Log) encodeFact(f events.Fact, salt string, now time.Time) (*nats.Msg, *partition, error) {
	env, err := events.Encode(f, now)
	if err != nil {
		return nil, nil, err
	}
	id, _, err := events.ParseSubject(env.Subject)
	if err != nil {
		return nil, nil, err
	}
	p := l.partitionOf(id)
	m := &nats.Msg{Subject: env.Subject, Header: nats.Header(env.Header), Data: env.Body}
	m.Header[jetstream.ExpectedStreamHeader] = []string{p.name}
	if salt != "" {
		m.Header[jetstream.MsgIDHeader] = []string{m.Header[jetstream.MsgIDHeader][0] + "#" + salt}
	}
	return m, p, nil
}

const (
	// maxHeader is JetStream's limit for a message's headers, in bytes (code 10097).
	maxHeader = 64 << 10
	// batchRoom is kept free for the headers of an atomic batch, and of a trace.
	batchRoom = 384
)

// measure refuses a message that is too large for the log, before it is published.
func (l *Log) measure(m *nats.Msg) error {
	header := m.Size() - len(m.Subject) - len(m.Reply) - len(m.Data) + batchRoom
	size := int64(header + len(m.Data))
	// Open has seen that the server takes MaxEvent; it may take more.
	if header > maxHeader || size > l.cfg.MaxEvent && size > l.wire.NC.MaxPayload() {
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
	}
	return nil
}

// attempts is how many attempts fit into the deadline if the server is silent.
const attempts = 5

func (l *Log) appendOne(ctx context.Context, p *partition, m *nats.Msg) (Ack, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Deadline/attempts)
	defer cancel()
	sent := time.Now()
	ack, err := l.wire.JS.PublishMsg(ctx, l.addressed(p, m), jetstream.WithRetryAttempts(0))
	if err != nil {
		return Ack{}, err
	}
	if ack.Duplicate {
		p.saw(ack.Sequence)
	} else {
		p.took(sent, ack.Sequence)
	}
	return Ack{Position: events.Position{Partition: p.number, Seq: ack.Sequence}, Duplicate: ack.Duplicate}, nil
}

// addressed returns a message with the address of its stream, if that is being restored. The message itself may be sent
// again.
func (l *Log) addressed(p *partition, m *nats.Msg) *nats.Msg {
	if !l.cfg.Restoring {
		return m
	}
	return &nats.Msg{Subject: layout.RestoringAddress(p.name) + m.Subject, Header: m.Header, Data: m.Data}
}
