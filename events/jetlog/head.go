package jetlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/internal/await"
	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
	"github.com/turnledger/turnledger/events/pause"
)

// Head returns the last durable position of a partition, which includes all that was acknowledged before the call. All
// waiting calls share one request.
func (l *Log) Head(ctx context.Context, partition int) (events.Position, error) {
	p, err := l.partition(partition)
	if err != nil {
		return events.Position{}, err
	}
	seq, err := p.barrier.Wait(ctx)
	if err != nil {
		return events.Position{}, Unavailable("head of "+p.name, err)
	}
	if err := p.gate.Wait(ctx, await.Mark(seq)); err != nil {
		return events.Position{}, err
	}
	return events.Position{Partition: partition, Seq: seq}, nil
}

// reaches reports whether the stream has come to a sequence, whatever the caller has that from.
func (l *Log) reaches(ctx context.Context, p *partition, seq uint64) (bool, error) {
	if seq <= p.seen.Load() {
		return true, nil
	}
	head, err := p.barrier.Wait(ctx)
	if err != nil {
		return false, Unavailable("head of "+p.name, err)
	}
	return seq <= head, nil
}

// last returns the stream's last sequence for the barrier. The embedded server is only asked for events after the last
// one that this log has seen. Mostly there are none, and this request costs a third of a request for the stream's
// information. Once a second last also asks for that information, to see that the stream was not replaced. An outside
// server is asked for it each time: others may replace the stream, and a server that is shutting down answers as if it
// had no events.
func (l *Log) last(ctx context.Context, p *partition) (uint64, error) {
	seen := p.seen.Load()
	checkedNow := time.Since(time.Unix(0, p.checked.Load())) < time.Second
	if seen > 0 && checkedNow && !l.cfg.Outside && !p.shared.Load() && !p.mirrored.Load() {
		ctx, cancel := context.WithTimeout(ctx, readDeadline)
		defer cancel()
		if behind, _, err := page(ctx, l.wire, p, ">", seen+1, math.MaxUint64, 1); err == nil && len(behind) == 0 {
			return seen, nil
		}
	}
	info, err := l.reaching(ctx, p, nil, seen)
	if err != nil {
		return 0, err
	}
	head := info.State.LastSeq
	if now := time.Now(); now.Sub(time.Unix(0, p.checked.Load())) >= time.Second {
		_, small := p.witness.get()
		if err := l.stands(ctx, p, small); err != nil {
			return 0, err
		}
		p.checked.Store(now.UnixNano())
	}
	p.saw(head)
	return head, nil
}

// reaching asks for the stream's information, whose head must not be before a sequence that the server has shown.
func (l *Log) reaching(ctx context.Context, p *partition, ask any, seen uint64) (streamInfo, error) {
	info, err := l.heard(ctx, p, ask)
	// A follower may have applied events, and shown them to a tail, before its leader applies them. So may the leader
	// before this one.
	for began := time.Now(); err == nil && info.State.LastSeq < seen && p.shared.Load() &&
		time.Since(began) < wire.AskAgain; {
		pause.For(ctx, 5*time.Millisecond)
		info, err = l.heard(ctx, p, ask)
	}
	switch {
	case err != nil || info.State.LastSeq >= seen:
		return info, err
	case p.shared.Load():
		return info, fmt.Errorf("%w: the leader of %s that answered knows less than is known", ErrUnavailable, p.name)
	}
	return info, fmt.Errorf("%w: stream %s went back to %d from %d: it was restored while it was in use: %s",
		ErrStream, p.name, info.State.LastSeq, seen, startAgain)
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

// head asks the leader. With replicas the answer counts only if the leader has heard from a majority within the
// election time, since a deposed leader answers too. A newly elected leader hears from the majority soon, so head asks
// it again.
func (l *Log) head(ctx context.Context, p *partition) (uint64, error) {
	info, err := l.heard(ctx, p, nil)
	return info.State.LastSeq, err
}

// heard asks for a stream's information until its leader has heard a majority.
func (l *Log) heard(ctx context.Context, p *partition, ask any) (streamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, readDeadline)
	defer cancel()
	for alone := error(nil); ; pause.For(ctx, majorityAgain) {
		info, err := l.info(ctx, p, ask)
		switch {
		case errors.Is(err, errNoMajority):
			alone = err
		case alone != nil && ctx.Err() != nil:
			return info, alone
		default:
			return info, err
		}
	}
}

var errNoMajority = errors.New("the leader has no majority")

// majorityAgain is the pause before a leader without a majority is asked again.
const majorityAgain = 50 * time.Millisecond

// streamInfo is what this package needs of a stream's information.
type streamInfo struct {
	Config struct {
		Replicas int               `json:"num_replicas"`
		Metadata map[string]string `json:"metadata"`
	} `json:"config"`
	State struct {
		FirstSeq uint64            `json:"first_seq"`
		LastSeq  uint64            `json:"last_seq"`
		Msgs     uint64            `json:"messages"`
		Deleted  []uint64          `json:"deleted"`
		Subjects map[string]uint64 `json:"subjects"`
	} `json:"state"`
	Created time.Time              `json:"created"`
	Cluster *jetstream.ClusterInfo `json:"cluster"`
	Error   *jetstream.APIError    `json:"error"`
}

// info asks the leader for a stream's information. It fails with ErrStream if the stream is not the one that this log
// opened.
func (l *Log) info(ctx context.Context, p *partition, ask any) (info streamInfo, err error) {
	if err := l.wire.Ask(ctx, "STREAM.INFO."+p.name, ask, &info); err != nil {
		return info, Unavailable("", err)
	}
	if info.Error != nil {
		return info, Unavailable("", info.Error)
	}
	if !layout.Made(info.Created, info.Config.Metadata).Equal(p.created) {
		return info, fmt.Errorf("%w: stream %s was made anew while it was in use: %s", ErrStream, p.name, startAgain)
	}
	if n := info.Config.Replicas; n > 1 && !heardMajority(info.Cluster, n) {
		return info, fmt.Errorf("%w: %s: %w", ErrUnavailable, p.name, errNoMajority)
	}
	p.shared.Store(clustered(info.Cluster))
	return info, nil
}

// count returns how many events the stream's index has of a subject, which may have wildcards.
func (l *Log) count(ctx context.Context, p *partition, subject string) (n uint64, err error) {
	info, err := l.reaching(ctx, p, map[string]any{"subjects_filter": subject}, p.seen.Load())
	if err != nil {
		return 0, Unavailable("count the events of a subject", err)
	}
	for _, of := range info.State.Subjects {
		n += of
	}
	return n, nil
}

const (
	readDeadline = wire.ReadDeadline
	// aliveTime is how recently a leader must have heard a follower for the follower to count. A follower stands for
	// election at the earliest 4 s after it last heard its leader (server/raft.go: minElectionTimeout), and leaders
	// send every second. The remaining second is for messages on their way.
	aliveTime = 3 * time.Second
)

// startAgain is the advice to an operator after a stream was replaced.
const startAgain = "start this process again, and then rebuild the projections: turnledger projections rebuild NAME"

// clustered reports whether a stream stands in a cluster. Such a stream may gain or lose replicas at any time, and a
// direct answer may be old: a replica that was just removed answers too.
func clustered(c *jetstream.ClusterInfo) bool { return c != nil && c.Name != "" }

// heardMajority reports whether a leader still led when it answered. If it has heard a majority lately, the other
// followers are too few to elect another leader. There is one exception. If two followers reach each other and only one
// of them reaches the leader, NATS grants a vote although the leader is alive. Such a leader learns of its deposition
// with its next heartbeat, within a second.
func heardMajority(c *jetstream.ClusterInfo, replicas int) bool {
	if c == nil || c.Leader == "" {
		return false
	}
	heard := 1
	for _, r := range c.Replicas {
		// Active is 0 for a follower that this leader has never heard (server/raft.go, Peers: it has no time).
		if !r.Offline && r.Active > 0 && r.Active < aliveTime {
			heard++
		}
	}
	return heard > replicas/2
}
