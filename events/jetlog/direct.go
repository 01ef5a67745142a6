package jetlog

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
)

// page asks for up to n events of a subject from a sequence on (JetStream's direct
// batch get, ADR-31) and gives those up to upTo. More tells that the subject has
// events behind the page. An answer that was cut off is an error, never a short
// page: jetstreamext.GetBatch of orbit 0.3 ends in silence when time runs out,
// which would read as "no history".
func (l *Log) page(ctx context.Context, p *partition, subject string, from, upTo uint64, n int) (out []events.Recorded, more bool, err error) {
	return l.direct(ctx, p, map[string]any{"seq": from, "next_by_subj": subject, "batch": n}, upTo, n)
}

// since gives the sequence of the first event recorded at or after a time, 0 where
// there is none.
func (l *Log) since(ctx context.Context, p *partition, at time.Time) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	first, _, err := l.direct(ctx, p, map[string]any{"start_time": at, "next_by_subj": ">", "batch": 1}, math.MaxUint64, 1)
	if err != nil || len(first) == 0 {
		return 0, err
	}
	return first[0].Position.Seq, nil
}

func (l *Log) direct(ctx context.Context, p *partition, ask map[string]any, upTo uint64, n int) (out []events.Recorded, more bool, err error) {
	req, err := json.Marshal(ask)
	if err != nil {
		return nil, false, err
	}
	address, answers, done, err := l.replies.box(n + 1)
	if err != nil {
		return nil, false, err
	}
	defer done()
	if err := l.nc.PublishRequest("$JS.API.DIRECT.GET."+p.name, address, req); err != nil {
		return nil, false, err
	}
	for {
		var m *nats.Msg
		select {
		case m = <-answers:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		if status := m.Header.Get("Status"); status != "" && m.Header.Get(jetstream.SequenceHeader) == "" {
			return endOfPage(out, status, m.Header)
		}
		e, err := p.fromDirect(m)
		if err != nil {
			return nil, false, err
		}
		if e.Position.Seq > upTo {
			return out, false, nil
		}
		out = append(out, e)
	}
}

// endOfPage reads the status message that closes an answer: 204 at its end, 404
// where the subject has nothing.
func endOfPage(out []events.Recorded, status string, h nats.Header) ([]events.Recorded, bool, error) {
	switch status {
	case "204":
		pending, err := strconv.Atoi(h.Get("Nats-Num-Pending"))
		return out, err == nil && pending > 0, nil
	case "404":
		return out, false, nil
	default:
		return nil, false, fmt.Errorf("direct get: status %s", status)
	}
}

func (p *partition) fromDirect(m *nats.Msg) (events.Recorded, error) {
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return events.Recorded{}, fmt.Errorf("direct get: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return events.Recorded{}, fmt.Errorf("direct get: %w", err)
	}
	return events.Decode(events.Envelope{Subject: m.Header.Get(jetstream.SubjectHeader), Header: events.Header(m.Header), Body: m.Data},
		events.Position{Partition: p.number, Seq: seq}, at), nil
}
