package follower

import (
	"context"
	"time"
)

// source brings the events of one partition, in order. After an error it goes on with the next call, unless the stream
// is no longer the one that it read.
type source[E any] interface {
	// next returns the next events, and the sequence up to which there are no others. It may return no events and a
	// higher sequence: there are none up to there.
	next(ctx context.Context) ([]E, uint64, error)
	close()
}

// reader brings one subscriber the events of a partition after a sequence, each once and in order. It reads by itself
// until it is at a position of a ring, and again when it has fallen out of it. For one goroutine.
type reader[E any] struct {
	// ring is nil where the reader reads alone.
	ring *ring[E]
	// floor returns the newest sequence that any part of the process has read. The reader takes only what came after
	// it has joined: an event that was read before may have been erased since.
	floor func() uint64
	// open makes a source after a sequence; it does no I/O.
	open func(after uint64) source[E]
	// still reports whether the log has no event between two sequences; nil where the source finds that out.
	still func(ctx context.Context, after, upTo uint64) (bool, error)
	// lead tries to make the reader's own source the one that fills the ring, and returns a hold on the ring if it did;
	// nil where something else fills it.
	lead func(own source[E], at uint64) *hold
	// most bounds what next returns, and left how many bytes of it come from the ring.
	most int
	left func() int
	// waited: the reader has given the ring time to open. quiet: nothing has come for a while, or yet.
	waited, quiet bool

	at     uint64
	own    source[E]
	hold   *hold
	joined bool
}

const (
	// openTime is how long a reader that begins waits for the ring before it reads by itself.
	openTime = time.Second
	// stillFor is how long a reader of its own waits for events before it looks at the ring again.
	stillFor = 250 * time.Millisecond
	// near is how far behind the ring a reader may be that the ring keeps events for.
	near = 20_000
)

// next implements source.
func (r *reader[E]) next(ctx context.Context) ([]E, uint64, error) {
	for {
		if err := r.join(ctx); err != nil {
			return nil, r.at, err
		}
		before := r.at
		batch, upTo, err := r.read(ctx)
		r.at, r.quiet = max(r.at, upTo), len(batch) == 0
		if len(batch) > 0 || err != nil || r.at > before {
			return batch, r.at, err
		}
	}
}

// read returns what comes next, or nothing if the caller should look at the ring again.
func (r *reader[E]) read(ctx context.Context) ([]E, uint64, error) {
	if r.joined {
		return r.take(ctx)
	}
	if r.own == nil {
		r.own = r.open(r.at)
	}
	return r.own.next(ctx)
}

// take takes from the ring, and waits for more.
func (r *reader[E]) take(ctx context.Context) ([]E, uint64, error) {
	batch, upTo, lost, err := r.ring.take(r.hold, r.most, r.left())
	switch {
	case lost:
		r.leave()
		return nil, r.at, err
	case len(batch) > 0 || upTo > r.at:
		return batch, upTo, nil
	}
	select {
	case <-r.hold.changed:
		return nil, r.at, nil
	case <-ctx.Done():
		return nil, r.at, ctx.Err()
	}
}

// join takes the reader into the ring as soon as it can.
func (r *reader[E]) join(ctx context.Context) error {
	if r.joined || r.ring == nil {
		return nil
	}
	r.awaitRing(ctx)
	if err := r.reserve(ctx); err != nil || r.hold == nil {
		return err
	}
	joined, lost := r.ring.join(r.hold, r.at)
	switch {
	case lost:
		r.leave()
	case joined:
		r.joined = true
		r.drop()
	}
	return nil
}

// awaitRing waits a moment for a ring that is about to open: a reader that joins at once needs no source.
func (r *reader[E]) awaitRing(ctx context.Context) {
	if r.waited || r.still == nil {
		return
	}
	r.waited = true
	r.ring.mu.Lock()
	opened := r.ring.opened
	r.ring.mu.Unlock()
	late := time.NewTimer(openTime)
	defer late.Stop()
	select {
	case <-opened:
	case <-late.C:
	case <-ctx.Done():
	}
}

// reserve has the ring keep what comes from now on, once the reader is near. A position that the log has not reached
// is for the reader's own source to judge.
func (r *reader[E]) reserve(ctx context.Context) error {
	if r.hold == nil && r.lead != nil && r.own != nil {
		if r.hold = r.lead(r.own, r.at); r.hold != nil {
			r.own, r.joined = nil, true
			return nil
		}
	}
	if floor := r.floor(); r.hold == nil && r.at+near >= floor && (r.own != nil || r.at <= floor) {
		r.hold = r.ring.hold(r.floor)
	}
	if r.hold == nil || r.still == nil || !r.quiet || r.at >= r.hold.at {
		return nil
	}
	return r.skip(ctx)
}

// skip passes over sequences up to the hold that the log has no events of.
func (r *reader[E]) skip(ctx context.Context) error {
	still, err := r.still(ctx, r.at, r.hold.at)
	if err == nil && still {
		r.at = r.hold.at
	}
	return err
}

func (r *reader[E]) leave() {
	if r.hold != nil {
		r.ring.leave(r.hold)
	}
	r.hold, r.joined = nil, false
}

func (r *reader[E]) drop() {
	if r.own != nil {
		r.own.close()
	}
	r.own = nil
}

// close implements source.
func (r *reader[E]) close() {
	r.leave()
	r.drop()
}
