package jetlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
)

// Last gives the last sequence of a session's subject as the leader knows it, 0
// for a session that the log does not know.
func (l *Log) Last(ctx context.Context, sessionID string) (uint64, error) {
	m, err := l.message(ctx, l.of(sessionID), map[string]any{"last_by_subj": events.SessionSubject(sessionID), "no_hdr": true})
	if err != nil {
		return 0, fmt.Errorf("last of a session: %w", err)
	}
	if m == nil {
		return 0, nil
	}
	return m.Seq, nil
}

// Session gives the events of a session after a sequence and up to another, in
// order, and all durable. On one replica it reads directly; on several it first
// asks the leader for the session's last sequence and does not end before that,
// since a follower's direct answer may be old (DESIGN §4).
func (l *Log) Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	return func(yield func(events.Recorded, error) bool) {
		r := sessionRead{log: l, p: l.of(sessionID), id: sessionID, after: after, upTo: upTo}
		if err := r.leaderFirst(ctx); err != nil {
			yield(events.Recorded{}, err)
			return
		}
		for {
			page, done, err := r.page(ctx)
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
			if err != nil {
				yield(events.Recorded{}, err)
			}
			if done || err != nil {
				return
			}
		}
	}
}

// sessionRead is one Session on its way.
type sessionRead struct {
	log         *Log
	p           *partition
	id          string
	after, upTo uint64
	// must is the session's last sequence that the leader knew of: a replica that
	// ends before it lags behind. Since is when one first did.
	must  uint64
	since time.Time
}

const (
	// pageSize bounds the events of one answer, pageBytes about their bytes.
	pageSize  = 512
	pageBytes = 4 << 20
	// lagPause is waited before a replica that lags behind is asked again.
	lagPause = 2 * time.Millisecond
)

// leaderFirst asks for what the read must hold. A leader that has been deposed
// without knowing answers too: the barrier, asked after it, tells.
func (r *sessionRead) leaderFirst(ctx context.Context) (err error) {
	if r.log.cfg.Replicas == 1 {
		return nil
	}
	if r.must, err = r.log.Last(ctx, r.id); err != nil {
		return err
	}
	if _, err := r.p.barrier.wait(ctx); err != nil {
		return fmt.Errorf("read session: %w: %w", ErrUnavailable, err)
	}
	return nil
}

// page gives the next events, and tells whether they are the last.
func (r *sessionRead) page(ctx context.Context) ([]events.Recorded, bool, error) {
	if r.after >= r.upTo {
		return nil, true, nil
	}
	page, end, err := r.log.sessionPage(ctx, r.p, events.SessionSubject(r.id), r.after+1, r.upTo)
	if err != nil {
		return nil, false, fmt.Errorf("read session: %w: %w", ErrUnavailable, err)
	}
	if n := len(page); n > 0 {
		r.after, r.since = page[n-1].Position.Seq, time.Time{}
		if err := r.p.gate.wait(ctx, r.after); err != nil {
			return nil, false, err
		}
	}
	switch {
	case end == more:
		return page, false, nil
	case end == beyond || r.after >= r.must:
		return page, true, nil
	}
	return page, false, r.behind(ctx)
}

// behind waits for a replica that answered with less than its leader has. What it
// lacks may have been erased meanwhile, so the leader is asked again too.
func (r *sessionRead) behind(ctx context.Context) error {
	if r.since.IsZero() {
		r.since = time.Now()
	}
	pause(ctx, lagPause)
	if ctx.Err() != nil || time.Since(r.since) > readDeadline {
		return fmt.Errorf("read session: %w: the replicas lag behind their leader", ErrUnavailable)
	}
	return r.leaderFirst(ctx)
}

// sessionPage reads directly. An event that can't come that way, since its header
// is no header, is read from the leader by itself.
func (l *Log) sessionPage(ctx context.Context, p *partition, subject string, from, upTo uint64) ([]events.Recorded, pageEnd, error) {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	page, end, err := l.page(ctx, p, subject, from, upTo, pageSize)
	if !errors.Is(err, errUnreadable) {
		return page, end, err
	}
	if len(page) > 0 {
		return page, more, nil
	}
	m, err := l.message(ctx, p, map[string]any{"seq": from, "next_by_subj": subject})
	switch {
	case err != nil || m == nil:
		return nil, ended, err
	case m.Seq > upTo:
		return nil, beyond, nil
	}
	return []events.Recorded{m.recorded(p)}, more, nil
}

// At gives the durable event at a position, and false where there is none: it was
// erased, or never was.
func (l *Log) At(ctx context.Context, at events.Position) (events.Recorded, bool, error) {
	p, err := l.partition(at.Partition)
	if err != nil || at.Seq == 0 {
		return events.Recorded{}, false, err
	}
	m, err := l.message(ctx, p, map[string]any{"seq": at.Seq})
	if err != nil || m == nil {
		return events.Recorded{}, false, err
	}
	if err := p.gate.wait(ctx, at.Seq); err != nil {
		return events.Recorded{}, false, err
	}
	return m.recorded(p), true, nil
}

// stored is a message as the leader gives it.
type stored struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

// message asks the leader for one message, nil where there is none.
func (l *Log) message(ctx context.Context, p *partition, request map[string]any) (*stored, error) {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	var out struct {
		Message *stored             `json:"message"`
		Error   *jetstream.APIError `json:"error"`
	}
	if err := l.api(ctx, "STREAM.MSG.GET."+p.name, request, &out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	switch {
	case out.Error != nil && out.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case out.Error != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, out.Error)
	case out.Message == nil:
		return nil, fmt.Errorf("%w: no message in the answer", ErrUnavailable)
	}
	return out.Message, nil
}

func (m *stored) recorded(p *partition) events.Recorded {
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		header = nats.Header{} // the event states nothing then, and is recorded as an anomaly
	}
	return events.Decode(events.Envelope{Subject: m.Subject, Header: events.Header(header), Body: m.Data},
		events.Position{Partition: p.number, Seq: m.Seq}, m.Time)
}
