package eraser

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/feed"
	"github.com/turnledger/turnledger/services"
)

// How a list of receipts reads the log, in sequences: so many in one go, and so many at most for one page.
const (
	listedAtOnce = 20_000
	listedAtMost = 500_000
)

// listing finds the redactions, prunes and erasures of the log, the newest first.
type listing struct {
	log   Log
	parts []*backwards
	// left is how many sequences this page may still read.
	left int
}

// backwards is how far a listing has read a partition.
type backwards struct {
	partition int
	// unread is the last sequence that was not read yet; 0 if all was read.
	unread uint64
	// reached is the time of the oldest event that was read, zero if none was.
	reached time.Time
	// found are the redactions and erasures that were read and not taken, the newest first.
	found []jetlog.Message
}

// Receipts returns the receipts of all redactions, prunes and erasures, the newest first. It reads the log backwards,
// and ends a page early once it has read much of the log. It fails with decide.ErrInvalid for a cursor that is
// none.
func (r *Receipts) Receipts(ctx context.Context, ask services.ReceiptsAsk) (out services.ReceiptPage, err error) {
	l, err := r.listing(ctx, ask.Cursor)
	if err != nil {
		return out, err
	}
	for len(out.Receipts) < ask.Limit {
		at, ok, err := l.take(ctx)
		if err != nil {
			return out, err
		}
		if !ok {
			break
		}
		receipt, err := r.at(ctx, at)
		if errors.Is(err, services.ErrNoReceipt) {
			continue // retention has taken it away meanwhile
		}
		if err != nil {
			return out, err
		}
		out.Receipts = append(out.Receipts, receipt)
	}
	out.NextCursor = l.cursor()
	return out, nil
}

// at returns the receipt of the redaction, prune or erasure at a position.
func (r *Receipts) at(ctx context.Context, at events.Position) (services.Receipt, error) {
	marker, err := r.marker(ctx, at)
	if err != nil {
		return services.Receipt{}, err
	}
	id := receiptOf(marker)
	if id == "" {
		id = at.String()
	}
	return r.of(ctx, id, marker)
}

// listing begins at a cursor, or at the end of the log.
func (r *Receipts) listing(ctx context.Context, cursor string) (*listing, error) {
	l, ends := &listing{log: r.log, left: listedAtMost}, events.Cursor{}
	if cursor != "" {
		at, err := events.ParsePositions(cursor)
		if err != nil {
			return nil, &decide.Invalid{Field: "cursor", Why: "must be the next_cursor of a page"}
		}
		ends = events.NewCursor(at...)
	}
	for k := range r.log.Partitions() {
		head, err := r.log.Head(ctx, k)
		if err != nil {
			return nil, err
		}
		if cursor != "" {
			head.Seq = min(head.Seq, ends[k])
		}
		l.parts = append(l.parts, &backwards{partition: k, unread: head.Seq})
	}
	return l, nil
}

// take returns the next redaction or erasure. ok is false at the end of the list, and if the page has read enough.
func (l *listing) take(ctx context.Context) (at events.Position, ok bool, err error) {
	for {
		newest, behind := l.next()
		switch {
		case behind == nil && newest == nil, behind != nil && l.left <= 0:
			return at, false, nil
		case behind == nil:
			at, newest.found = newest.found[0].Position, newest.found[1:]
			return at, true, nil
		}
		if err := behind.read(ctx, l.log); err != nil {
			return at, false, err
		}
		l.left -= listedAtOnce
	}
}

// next returns the partition that has the newest event, or else the one to read first, since it may have a newer one.
// Both are nil at the end.
func (l *listing) next() (newest, behind *backwards) {
	for _, b := range l.parts {
		if len(b.found) > 0 && (newest == nil || b.found[0].Time.After(newest.found[0].Time)) {
			newest = b
		}
	}
	for _, b := range l.parts {
		if len(b.found) == 0 && b.unread > 0 &&
			(newest == nil || b.reached.IsZero() || b.reached.After(newest.found[0].Time)) {
			return nil, b
		}
	}
	return newest, nil
}

// read reads the events before those that were read.
func (b *backwards) read(ctx context.Context, log Log) error {
	after := b.unread - min(b.unread, listedAtOnce)
	first, begun := b.reached, false
	from := events.Position{Partition: b.partition, Seq: after}
	for m, err := range feed.Between(ctx, log, from, b.unread, headers, feed.Fast) {
		if err != nil {
			return err
		}
		if !begun {
			first, begun = m.Time, true
		}
		if events.WithdrawalOf(m.Type()) >= events.WithdrawsMessages {
			b.found = append(b.found, m)
		}
	}
	slices.Reverse(b.found)
	b.unread, b.reached = after, first
	return nil
}

// cursor returns where the next page begins, or nothing at the end.
func (l *listing) cursor() string {
	rest, more := events.Cursor{}, false
	for _, b := range l.parts {
		rest[b.partition] = b.unread
		if len(b.found) > 0 {
			rest[b.partition] = b.found[0].Position.Seq
		}
		more = more || rest[b.partition] > 0
	}
	if !more {
		return ""
	}
	return rest.String()
}
