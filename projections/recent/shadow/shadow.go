// Package shadow reads a second recent view beside the first, for operators who move from one to the other. Answers
// come from the first view. Differences in the second view are counted and logged, by session and digest, never with a
// text.
package shadow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// Name is the name of the second recent view in lists, receipts and metrics.
const Name = "recent-shadow"

// Second is the second view, fed and listed under its own name.
type Second struct{ projections.View }

// Name implements projections.View.
func (Second) Name() string { return Name }

// Shadow is a first view with a second beside it. Safe for concurrent use.
type Shadow struct {
	recent.Reader
	second recent.Loader
	asked  chan read
	reads  *prometheus.CounterVec
	logger *slog.Logger
}

type read struct {
	session   string
	partition int
}

// waiting bounds the reads that wait for their comparison. Further reads are counted as skipped, so that no answer is
// delayed.
const waiting = 1024

// New makes a shadow, with its counter in a registry; it does no I/O.
func New(first recent.Reader, second recent.Loader, reg prometheus.Registerer, logger *slog.Logger) *Shadow {
	s := &Shadow{Reader: first, second: second, asked: make(chan read, waiting), logger: logger,
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "turnledger", Subsystem: "recent_shadow", Name: "reads_total",
			Help: "Reads that were compared with the second view, by result: " +
				"same, different, behind (one of both), skipped, failed.",
		}, []string{"result"})}
	reg.MustRegister(s.reads)
	return s
}

// Load answers from the first view, and queues the session for comparison.
func (s *Shadow) Load(ctx context.Context, sessionID string, partition, shown int) (recent.Snapshot, error) {
	select {
	case s.asked <- read{sessionID, partition}:
	default:
		s.reads.WithLabelValues("skipped").Inc()
	}
	return s.Reader.Load(ctx, sessionID, partition, shown)
}

// Run compares until ctx ends, and then returns nil.
func (s *Shadow) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-s.asked:
			result := s.compare(ctx, r)
			if ctx.Err() == nil {
				s.reads.WithLabelValues(result).Inc()
			}
		}
	}
}

const (
	// tries bounds how often both views are read until they are at the same position.
	tries      = 20
	retryPause = 25 * time.Millisecond
)

func (s *Shadow) compare(ctx context.Context, r read) string {
	for range tries {
		first, err := s.Reader.Load(ctx, r.session, r.partition, recent.AllTurns)
		if err != nil {
			return "failed"
		}
		second, err := s.second.Load(ctx, r.session, r.partition, recent.AllTurns)
		if err != nil {
			if ctx.Err() == nil {
				s.logger.Warn("the second recent view does not answer", "session_id", r.session, "err", err)
			}
			return "failed"
		}
		one, two := digests(first.State, second.State)
		if one == two {
			return "same"
		}
		if first.Applied == second.Applied {
			s.logger.Warn("the second recent view holds something else", "session_id", r.session, "position",
				first.Applied, "first", one, "second", two)
			return "different"
		}
		pause.For(ctx, retryPause)
	}
	return "behind"
}

// digests returns digests of what two views hold of a session, from the first turn that both hold. A view that began
// later, or keeps fewer turns, holds only the newest.
func digests(first, second *session.State) (one, two string) {
	from := max(oldest(first), oldest(second))
	return digest(first, from), digest(second, from)
}

// oldest returns the place of the oldest turn in a state that has lost turns.
func oldest(s *session.State) uint64 {
	if s == nil || s.Whole || len(s.Turns) == 0 {
		return 0
	}
	return s.Turns[0].Place
}

func digest(s *session.State, from uint64) string {
	if s == nil {
		return "none"
	}
	sum := sha256.New()
	head := recent.HeadDigest(s.Head())
	_, _ = sum.Write(head[:])
	for _, t := range s.Turns {
		if t.Place >= from && (t.Status == session.Finalized || t.Status == session.Pending) {
			d := recent.TurnDigest(t)
			_, _ = sum.Write(d[:])
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
