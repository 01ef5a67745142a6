package jetlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/internal/await"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// pageEnd says why a page ends.
type pageEnd int

const (
	// ended: the replica has no more events of the subject.
	ended pageEnd = iota
	// more: the subject has more events after the page.
	more
	// beyond: the subject's next event lies after the last requested sequence.
	beyond
)

// errUnreadable: the next event's header can't be parsed, so the values that the server wrote into it can't be read
// either. The events before it are returned with the error.
var errUnreadable = errors.New("an event without readable headers")

// errMirror: the answer came from a mirror of the stream, which may be behind, or may hold erased events.
var errMirror = errors.New("the answer of a mirror")

// page asks for up to n events of a subject from a sequence on, and returns those up to upTo.
func page(
	ctx context.Context, over *wire.Conn, p *partition, subject string, from, upTo uint64, n int,
) ([]events.Recorded, pageEnd, error) {
	request := map[string]any{"seq": from, "next_by_subj": subject, "batch": n, "max_bytes": pageBytes}
	return direct(ctx, over, p, request, upTo, n)
}

// direct reads with JetStream's direct batch get (ADR-31). If an answer was cut off, or lacks a part, direct fails and
// never returns a short page. That is why it does not use jetstreamext.GetBatch of orbit 0.3, which ends without an
// error when time runs out: that would look like "no history".
func direct(
	ctx context.Context, over *wire.Conn, p *partition, ask map[string]any, upTo uint64, n int,
) (out []events.Recorded, end pageEnd, err error) {
	req, err := json.Marshal(ask)
	if err != nil {
		return nil, ended, err
	}
	address, answers, done, err := over.Box(n + 1)
	if err != nil {
		return nil, ended, err
	}
	defer done()
	if err := over.NC.PublishRequest("$JS.API.DIRECT.GET."+p.name, address, req); err != nil {
		return nil, ended, err
	}
	for before := uint64(0); ; before = out[len(out)-1].Position.Seq {
		m, err := over.Next(ctx, answers)
		if err != nil {
			return nil, ended, err
		}
		switch {
		case serverHeader(m, jetstream.SequenceHeader) != "":
		case m.Size()-len(m.Subject)-len(m.Reply) < leastHeader && len(m.Header) > 0:
			return endOfPage(out, before, m)
		default:
			return out, more, errUnreadable
		}
		if serverHeader(m, jetstream.LastSequenceHeader) != strconv.FormatUint(before, 10) {
			return nil, ended, errGap
		}
		if serverHeader(m, jetstream.StreamHeader) != p.name {
			p.mirrored.Store(true)
			return nil, ended, errMirror
		}
		e, err := p.fromDirect(m)
		if err != nil {
			return nil, ended, err
		}
		if e.Position.Seq > upTo {
			return out, beyond, nil
		}
		out = append(out, e)
	}
}

// Some returns durable events at sequences of a partition, in any order. An event that it does not return may be there
// all the same, as where a replica is behind: At knows. What it costs depends on nothing but these events, whereas the
// server, asked for the events of a session, first counts those behind them.
func (l *Log) Some(ctx context.Context, partition int, seqs []uint64) ([]events.Recorded, error) {
	p, err := l.partition(partition)
	if err != nil || len(seqs) == 0 {
		return nil, err
	}
	limit := readDeadline
	if p.shared.Load() {
		limit = replicaDeadline
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	asks := make([]string, len(seqs))
	for i, seq := range seqs {
		asks[i] = fmt.Sprintf(`{"seq":%d}`, seq)
	}
	var out []events.Recorded
	err = l.each(within, p, asks, func(m *nats.Msg) error {
		e, err := p.fromDirect(m)
		out = append(out, e)
		return err
	})
	if err != nil && ctx.Err() != nil {
		return nil, Unavailable("read events", err)
	}
	return out, p.durable(ctx, out)
}

// durable waits until events that the server gave are on disk.
func (p *partition) durable(ctx context.Context, given []events.Recorded) error {
	newest := uint64(0)
	for i := range given {
		newest = max(newest, given[i].Position.Seq)
	}
	return p.gate.Wait(ctx, await.Mark(newest))
}

// each asks for single messages, some at once, and calls use with those that there are and whose headers can be read.
func (l *Log) each(ctx context.Context, p *partition, asks []string, use func(*nats.Msg) error) error {
	address, answers, done, err := l.reads.Box(len(asks))
	if err != nil {
		return err
	}
	defer done()
	subject, asked := "$JS.API.DIRECT.GET."+p.name, 0
	for answered := range asks {
		for ; asked < min(answered+atOnce, len(asks)); asked++ {
			if err := l.reads.NC.PublishRequest(subject, address, []byte(asks[asked])); err != nil {
				return err
			}
		}
		m, err := l.reads.Next(ctx, answers)
		if err != nil {
			return err
		}
		switch stream := serverHeader(m, jetstream.StreamHeader); {
		case m.Header.Get("Status") == "503":
			return nats.ErrNoResponders
		case stream == "" || serverHeader(m, jetstream.SequenceHeader) == "":
		case stream != p.name:
			p.mirrored.Store(true)
			return nil
		default:
			if err := use(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// atOnce bounds the single events that are asked for before one has come. The server closes a connection that 64 MB
// wait for.
const atOnce = 8

// leastHeader is fewer bytes than the server writes into an event that it returns directly (stream, subject, sequence,
// time, number of pending events), and more than it writes into a status. So no event is taken for a status, whatever
// its publisher wrote.
const leastHeader = 128

var errGap = errors.New("a part of the answer was lost")

// serverHeader returns the value of a header that the server wrote into an event. It is the last value: the event's
// publisher may have written others before it.
func serverHeader(m *nats.Msg, name string) string {
	v := m.Header[name]
	if len(v) == 0 {
		return ""
	}
	return v[len(v)-1]
}

// endOfPage reads the status message that closes an answer: 204 at its end, 404 if the subject has no events.
func endOfPage(out []events.Recorded, before uint64, m *nats.Msg) ([]events.Recorded, pageEnd, error) {
	switch status := m.Header.Get("Status"); status {
	case "204":
		pending, err := strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
		if err != nil || m.Header.Get(jetstream.LastSequenceHeader) != strconv.FormatUint(before, 10) {
			return nil, ended, errGap
		}
		if pending > 0 {
			return out, more, nil
		}
		return out, ended, nil
	case "404":
		return out, ended, nil
	default:
		return nil, ended, fmt.Errorf("direct get: status %s", status)
	}
}

func (p *partition) fromDirect(m *nats.Msg) (events.Recorded, error) {
	seq, err := strconv.ParseUint(serverHeader(m, jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return events.Recorded{}, fmt.Errorf("direct get: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, serverHeader(m, jetstream.TimeStampHeaer))
	if err != nil {
		return events.Recorded{}, fmt.Errorf("direct get: %w", err)
	}
	envelope := events.Envelope{
		Subject: serverHeader(m, jetstream.SubjectHeader), Header: events.Header(m.Header), Body: m.Data,
	}
	return events.Decode(envelope, events.Position{Partition: p.number, Seq: seq}, at), nil
}
