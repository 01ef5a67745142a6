package jetlog

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
)

// Head gives the last durable position of a partition, at least as new as all that
// was acknowledged before the call. All calls that wait share one question.
func (l *Log) Head(ctx context.Context, partition int) (events.Position, error) {
	p := l.partitions[partition]
	seq, err := p.barrier.wait(ctx)
	if err != nil {
		return events.Position{}, fmt.Errorf("head of %s: %w: %w", p.name, ErrUnavailable, err)
	}
	if err := p.gate.wait(ctx, seq); err != nil {
		return events.Position{}, err
	}
	return events.Position{Partition: partition, Seq: seq}, nil
}

// last gives the stream's last sequence for the barrier. One replica is asked
// whether it has anything behind what this log has seen, which it mostly has not:
// that costs a third of the stream's information.
func (l *Log) last(ctx context.Context, p *partition) (uint64, error) {
	seen := p.seen.Load()
	if l.cfg.Replicas == 1 && seen > 0 {
		ctx, cancel := context.WithTimeout(ctx, readDeadline)
		defer cancel()
		if behind, _, err := l.page(ctx, p, ">", seen+1, math.MaxUint64, 1); err == nil && len(behind) == 0 {
			return seen, nil
		}
	}
	head, err := l.head(ctx, p)
	if err == nil {
		p.saw(head)
	}
	return head, err
}

// saw notes a sequence that the server has shown.
func (p *partition) saw(seq uint64) {
	for {
		old := p.seen.Load()
		if seq <= old || p.seen.CompareAndSwap(old, seq) {
			return
		}
	}
}

// head asks the leader. With replicas its answer counts only if it has heard a
// majority within the election time: a deposed leader answers too.
func (l *Log) head(ctx context.Context, p *partition) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	var out struct {
		State struct {
			LastSeq uint64 `json:"last_seq"`
		} `json:"state"`
		Created time.Time              `json:"created"`
		Cluster *jetstream.ClusterInfo `json:"cluster"`
		Error   *jetstream.APIError    `json:"error"`
	}
	if err := l.api(ctx, "STREAM.INFO."+p.name, nil, &out); err != nil {
		return 0, err
	}
	if out.Error != nil {
		return 0, out.Error
	}
	if !out.Created.Equal(p.created) {
		return 0, fmt.Errorf("%w: stream %s was made anew while it was in use: stop, and rebuild the projections", ErrStream, p.name)
	}
	if out.Cluster != nil && l.cfg.Replicas > 1 && !heardMajority(out.Cluster, l.cfg.Replicas) {
		return 0, fmt.Errorf("%w: the leader of %s has no majority", ErrUnavailable, p.name)
	}
	return out.State.LastSeq, nil
}

const (
	readDeadline = 2 * time.Second
	// electionTime is the shortest time after which a follower stands for election
	// (server/raft.go: minElectionTimeout 4 s).
	electionTime = 4 * time.Second
)

func heardMajority(c *jetstream.ClusterInfo, replicas int) bool {
	heard := 1
	for _, r := range c.Replicas {
		if !r.Offline && r.Active < electionTime {
			heard++
		}
	}
	return heard > replicas/2
}

func (l *Log) api(ctx context.Context, verb string, req, out any) error {
	var body []byte
	if req != nil {
		var err error
		if body, err = json.Marshal(req); err != nil {
			return err
		}
	}
	reply, err := l.nc.RequestWithContext(ctx, "$JS.API."+verb, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(reply.Data, out)
}

// Last gives the last sequence of a session's subject as the leader knows it, 0
// for a session that the log does not know.
func (l *Log) Last(ctx context.Context, sessionID string) (uint64, error) {
	p := l.partitions[l.Partition(sessionID)]
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	var out struct {
		Message *struct {
			Seq uint64 `json:"seq"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	req := map[string]any{"last_by_subj": events.SessionSubject(sessionID), "no_hdr": true}
	if err := l.api(ctx, "STREAM.MSG.GET."+p.name, req, &out); err != nil {
		return 0, fmt.Errorf("last of a session: %w: %w", ErrUnavailable, err)
	}
	switch {
	case out.Error != nil && out.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return 0, nil
	case out.Error != nil:
		return 0, fmt.Errorf("last of a session: %w: %w", ErrUnavailable, out.Error)
	case out.Message == nil:
		return 0, fmt.Errorf("last of a session: %w", ErrUnavailable)
	}
	return out.Message.Seq, nil
}

// Session gives the events of a session after a sequence and up to another, in
// order. On one replica it reads directly; on several it first asks the leader for
// the session's last sequence and does not end before that, since a follower's
// direct answer may be old (DESIGN §4).
func (l *Log) Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	return func(yield func(events.Recorded, error) bool) {
		must := uint64(0)
		if l.cfg.Replicas > 1 {
			last, err := l.Last(ctx, sessionID)
			if err != nil {
				yield(events.Recorded{}, err)
				return
			}
			must = min(last, upTo)
		}
		for after < upTo {
			page, more, err := l.sessionPage(ctx, sessionID, after, upTo)
			if err != nil {
				yield(events.Recorded{}, err)
				return
			}
			for _, e := range page {
				after = e.Position.Seq
				if !yield(e, nil) {
					return
				}
			}
			if !more && (after >= must || l.giveUp(ctx)) {
				return
			}
		}
	}
}

// giveUp waits a moment for a follower that answered with less than its leader
// has, and tells whether the caller's time is over.
func (l *Log) giveUp(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	case <-time.After(2 * time.Millisecond):
		return false
	}
}

const pageSize = 512

func (l *Log) sessionPage(ctx context.Context, sessionID string, after, upTo uint64) ([]events.Recorded, bool, error) {
	p := l.partitions[l.Partition(sessionID)]
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	page, more, err := l.page(ctx, p, events.SessionSubject(sessionID), after+1, upTo, pageSize)
	if err != nil {
		return nil, false, fmt.Errorf("read session: %w: %w", ErrUnavailable, err)
	}
	return page, more, nil
}

// At gives the event at a position, and false where there is none: it was erased,
// or never was.
func (l *Log) At(ctx context.Context, at events.Position) (events.Recorded, bool, error) {
	p := l.partitions[at.Partition]
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	var out struct {
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := l.api(ctx, "STREAM.MSG.GET."+p.name, map[string]any{"seq": at.Seq}, &out); err != nil {
		return events.Recorded{}, false, fmt.Errorf("read %s: %w: %w", at, ErrUnavailable, err)
	}
	if out.Error != nil && out.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound {
		return events.Recorded{}, false, nil
	}
	if out.Error != nil || out.Message == nil {
		return events.Recorded{}, false, fmt.Errorf("read %s: %w", at, ErrUnavailable)
	}
	header, err := nats.DecodeHeadersMsg(out.Message.Header)
	if err != nil {
		header = nats.Header{}
	}
	return events.Decode(events.Envelope{Subject: out.Message.Subject, Header: events.Header(header), Body: out.Message.Data},
		at, out.Message.Time), true, nil
}

// SeqAt gives the sequence before the first event recorded at or after a time: a
// tail after it delivers what came since. Where there is none it is the head.
func (l *Log) SeqAt(ctx context.Context, partition int, since time.Time) (uint64, error) {
	p := l.partitions[partition]
	first, err := l.since(ctx, p, since)
	if err != nil {
		return 0, fmt.Errorf("position at a time: %w: %w", ErrUnavailable, err)
	}
	if first > 0 {
		return first - 1, nil
	}
	return l.head(ctx, p)
}
