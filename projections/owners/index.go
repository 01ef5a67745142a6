// Package owners knows which sessions belong to an identity, and which have summaries or branches.
package owners

import (
	"cmp"
	"context"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/follower"
)

// Index knows where sessions were linked, and which were summarised or forked. It reads the headers of the log once,
// from its beginning, and then follows the log. It only finds candidates, which its users check in the log, so it is no
// second source of truth. Each link takes 32 bytes of memory and the session's id, and each session that was linked,
// summarised or forked takes about as much. Safe for concurrent use.
type Index struct {
	log      *jetlog.Log
	follower *follower.Follower
	logger   *slog.Logger
	// read says of each partition how far it is.
	read []jetlog.Watermark

	mu    sync.RWMutex
	links [][]link // by partition, in the order of the log
	// had says of sessions whether they ever had links, summaries and branches; of sessions without any it has nothing.
	had map[string]Had
}

// Had says what there ever was of a session.
type Had struct{ Links, Summaries, Branches bool }

// link is an event that links a session. It holds a hash of the event's id. The id depends on the identity, so an
// identity's links can be found without reading bodies.
type link struct {
	session string
	id, seq uint64
}

// New makes an index of a log, which it reads by itself; it does no I/O.
func New(log *jetlog.Log, logger *slog.Logger) *Index {
	return On(log, follower.Alone(log, follower.Config{Logger: logger}), logger)
}

// On makes an index of a log that it follows with others; it does no I/O.
func On(log *jetlog.Log, f *follower.Follower, logger *slog.Logger) *Index {
	n := log.Partitions()
	return &Index{
		log: log, follower: f, logger: cmp.Or(logger, slog.New(slog.DiscardHandler)), read: make([]jetlog.Watermark, n),
		links: make([][]link, n), had: map[string]Had{},
	}
}

// Follower returns what the index reads the log with.
func (x *Index) Follower() *follower.Follower { return x.follower }

// Run reads every partition and follows it until ctx ends. It shows the headers of all events to the others, after it
// has noted the links among them: they need not read the log themselves.
func (x *Index) Run(ctx context.Context, others ...func(context.Context, []jetlog.Message) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for k := range x.read {
		g.Go(func() error {
			return x.follower.Read(ctx, follower.Following{
				Partition: k, Options: jetlog.TailOptions{HeadersOnly: true, MaxBatch: 4000},
				Watermark: &x.read[k], Pause: time.Second,
				Read: func(ctx context.Context, batch []jetlog.Message) error { return x.note(ctx, k, batch, others) },
				Warn: func(err error) {
					x.logger.Warn("the index of owners waits for the log", "partition", k, "err", err)
				},
			})
		})
	}
	return g.Wait()
}

func (x *Index) note(
	ctx context.Context, partition int, batch []jetlog.Message, others []func(context.Context, []jetlog.Message) error,
) error {
	for _, m := range batch {
		has := Had{
			Links: m.Type() == events.TypeSessionLinked, Summaries: m.Type() == events.TypeSessionSummarized,
			Branches: m.Type() == events.TypeSessionBranched,
		}
		if has == (Had{}) {
			continue
		}
		session, identity, err := events.ParseSubject(m.Subject)
		if err != nil || identity {
			continue
		}
		if has.Links {
			x.add(partition, link{session, hashOf(m.ID()), m.Position.Seq})
		}
		x.addHad(session, has)
	}
	for _, other := range others {
		if err := other(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// add notes a link unless it is noted already: after a failure a batch comes again.
func (x *Index) add(partition int, l link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(x.links[partition]); n == 0 || x.links[partition][n-1].seq < l.seq {
		x.links[partition] = append(x.links[partition], l)
	}
}

func (x *Index) addHad(session string, has Had) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.had[session]
	x.had[session] = Had{h.Links || has.Links, h.Summaries || has.Summaries, h.Branches || has.Branches}
}

// Had says what there ever was of a session, as far as the index has read.
func (x *Index) Had(session string) Had {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.had[session]
}

// Reached waits until the index, and the others of Run, have read everything up to a position.
func (x *Index) Reached(ctx context.Context, at events.Position) error {
	return x.log.Reached(ctx, &x.read[at.Partition], at)
}

// Linked is a session that is linked to an identity. Root is that of a branch, or "".
type Linked struct{ Session, Root string }

// Sessions returns the sessions of a partition that are linked to an identity, in the order of their links, as far as
// the index has read. A branch whose root was erased is among them: it has the identity no more, and its texts go with
// the identity's erasure.
func (x *Index) Sessions(ctx context.Context, identity string, partition int) (sessions []Linked, err error) {
	x.mu.RLock()
	links := x.links[partition] // only ever added to
	x.mu.RUnlock()
	seen := map[string]bool{}
	for _, l := range links {
		wanted := events.SessionLinked{SessionID: l.session, IdentityID: identity}
		if seen[l.session] || l.id != hashOf(wanted.EventID()) {
			continue
		}
		// Only a session's first valid link counts: a later link to another identity changes nothing.
		s, err := session.UpToLink(l.session, x.log.Session(ctx, l.session, 0, l.seq))
		if err != nil {
			return nil, err
		}
		if s.Identity == identity {
			seen[l.session], sessions = true, append(sessions, Linked{l.session, s.Fork().Root})
		}
	}
	return sessions, nil
}

func hashOf(eventID string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(eventID))
	return h.Sum64()
}
