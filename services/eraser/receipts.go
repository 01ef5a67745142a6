package eraser

import (
	"cmp"
	"context"
	"encoding/base64"
	"iter"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/feed"
	"github.com/turnledger/turnledger/services"
)

// Receipts reads receipts from the log. It does not erase. Safe for concurrent use.
type Receipts struct {
	log    Log
	notes  *jetlog.Notes
	places []Place
	// closed holds, for the receipt of an erased identity, the log's ends at the time when its sessions were first seen
	// closed. A view must reach those positions. The log's present end would not do: in a busy log every view is always
	// behind it.
	closed *lru.Cache[string, []events.Position]
}

var _ services.ReceiptReader = (*Receipts)(nil)

// closedKept bounds how many receipts have their positions in closed. For other receipts the log's ends are read again.
const closedKept = 1024

// NewReceipts makes a reader of receipts that list these places; it does no I/O.
func NewReceipts(log Log, notes *jetlog.Notes, places []Place) *Receipts {
	closed, _ := lru.New[string, []events.Position](closedKept) // it fails only for a size of 0 or less
	return &Receipts{log, notes, places, closed}
}

// Receipt returns the receipt with an id: the id of an erasure's receipt, or the position of a redaction or a prune. It
// fails with services.ErrNoReceipt if the log has none of them.
func (r *Receipts) Receipt(ctx context.Context, id string) (services.Receipt, error) {
	marker, err := r.find(ctx, id)
	if err != nil {
		return services.Receipt{}, err
	}
	return r.of(ctx, cmp.Or(receiptOf(marker), id), marker)
}

// of returns the receipt of a redaction, a prune or an erasure.
func (r *Receipts) of(ctx context.Context, id string, marker events.Recorded) (services.Receipt, error) {
	out := services.Receipt{ID: id, Position: marker.Position, RequestedAt: marker.Time}
	var err error
	var written map[string]*stamped
	if f, ok := marker.Fact.(*events.SessionErased); ok {
		out.SessionID, out.IdentityID, out.Reason, out.By = f.SessionID, f.IdentityID, f.Reason, f.ErasedBy
		written, err = sessionReceipts(ctx, r.log, marker.Position, f.SessionID, f.ReceiptID)
	}
	if f, ok := marker.Fact.(*events.IdentityErased); ok {
		out.IdentityID, out.Reason, out.By = f.IdentityID, f.Reason, f.ErasedBy
		written, err = identityReceipts(ctx, r.log, marker.Position, f.IdentityID, f.ReceiptID)
	}
	if n := events.NamesOf(marker.Fact); withdrawsOfTurn(marker.Fact) {
		out.SessionID, out.TurnID = marker.SessionID, n.TurnID.String()
	}
	if f, ok := marker.Fact.(*events.TurnRedacted); ok {
		out.Reason, out.By, out.Owner = f.Reason, f.RedactedBy, f.IdentityID
	}
	if f, ok := marker.Fact.(*events.TurnPruned); ok {
		out.Reason, out.By = f.Reason, f.RedactedBy
	}
	if err != nil {
		return services.Receipt{}, err
	}
	if w := written[PlaceLog]; w != nil {
		out.Shared = &services.SharedTurns{Branches: w.Branches, Turns: w.SharedTurns}
	}
	r.fill(ctx, &out, written)
	switch {
	case out.TurnID != "":
		err = r.stamped(ctx, &out)
	case !out.Complete():
		err = r.progress(ctx, &out)
	}
	return out, err
}

// progress fills in how far an unfinished erasure has come.
func (r *Receipts) progress(ctx context.Context, out *services.Receipt) error {
	var progress progressNote
	revision, err := r.notes.Read(ctx, progressKey(out.ID, out.SessionID), &progress)
	if err == nil && revision != 0 {
		out.Progress = &progress.ErasureProgress
		out.Shared = cmp.Or(out.Shared, progress.Shared)
	}
	if log := &out.Places[0]; !log.Done {
		log.Why = progress.Why
	}
	return err
}

// fill lists the places: those with a written receipt as it says, and the others by how far they have read.
func (r *Receipts) fill(ctx context.Context, out *services.Receipt, written map[string]*stamped) {
	markers := []events.Position{out.Position}
	if out.SessionID == "" {
		markers = r.heads(ctx, out.ID, written)
	}
	out.Places = []services.ReceiptPlace{{Place: PlaceLog}}
	for _, p := range r.places {
		reached := false
		if len(markers) > 0 {
			reached, _ = reachedAll(ctx, p, markers) // a view that does not answer is not done
		}
		out.Places = append(out.Places, services.ReceiptPlace{Place: p.Name(), Done: reached})
	}
	for name, w := range written {
		i := slices.IndexFunc(out.Places, func(p services.ReceiptPlace) bool { return p.Place == name })
		if i < 0 {
			i = len(out.Places)
			out.Places = append(out.Places, services.ReceiptPlace{})
		}
		out.Places[i] = services.ReceiptPlace{Place: name, Done: true, Erased: &w.Erased, At: w.at}
	}
}

// heads returns the positions that the views of an erased identity must reach: the ends of the log at the first call
// after all sessions of the identity were closed. The log's receipt proves that they are closed. heads returns nothing
// while that receipt is missing, if every view has its receipt already, or if the log does not answer. Views need heads
// because no eraser may know a view in this process's memory, and then nobody writes a receipt for it.
func (r *Receipts) heads(ctx context.Context, id string, written map[string]*stamped) (out []events.Position) {
	missing := func(p Place) bool { return written[p.Name()] == nil }
	if written[PlaceLog] == nil || !slices.ContainsFunc(r.places, missing) {
		return nil
	}
	if at, ok := r.closed.Get(id); ok {
		return at
	}
	for k := range r.log.Partitions() {
		head, err := r.log.Head(ctx, k)
		if err != nil {
			return nil
		}
		out = append(out, head)
	}
	r.closed.Add(id, out)
	return out
}

// nearby bounds how many events find searches for an erasure, beginning at the position in the receipt's id. Other
// writers may have appended events between that position and the erasure.
const nearby = 100_000

// find returns the event that a receipt belongs to.
func (r *Receipts) find(ctx context.Context, id string) (events.Recorded, error) {
	if at, err := events.ParsePosition(id); err == nil {
		return r.marker(ctx, at)
	}
	after, ok := askedAfter(id)
	if !ok || after.Partition >= r.log.Partitions() {
		return events.Recorded{}, services.ErrNoReceipt
	}
	head, err := r.log.Head(ctx, after.Partition)
	if err != nil {
		return events.Recorded{}, err
	}
	if after.Seq >= head.Seq {
		return events.Recorded{}, services.ErrNoReceipt
	}
	upTo, opts := min(head.Seq, after.Seq+nearby), jetlog.TailOptions{MaxBatch: scannedAtOnce}
	for m, err := range feed.Between(ctx, r.log, after, upTo, opts, feed.Fast) {
		if err != nil {
			return events.Recorded{}, err
		}
		switch w := events.WithdrawalOf(m.Type()); {
		case w != events.WithdrawsSession && w != events.WithdrawsIdentity: // has no receipt id
		case receiptOf(m.Recorded()) == id:
			return m.Recorded(), nil
		}
	}
	return events.Recorded{}, services.ErrNoReceipt
}

// marker returns the redaction, prune or erasure at a position, if it counted.
func (r *Receipts) marker(ctx context.Context, at events.Position) (events.Recorded, error) {
	if at.Partition >= r.log.Partitions() {
		return events.Recorded{}, services.ErrNoReceipt
	}
	e, found, err := r.log.At(ctx, at)
	if err != nil {
		return events.Recorded{}, err
	}
	if !found || !withdrawsOfTurn(e.Fact) && receiptOf(e) == "" {
		return events.Recorded{}, services.ErrNoReceipt
	}
	return e, nil
}

// withdrawsOfTurn reports whether a fact withdraws a turn, or messages of one: its position is its receipt.
func withdrawsOfTurn(f events.Fact) bool {
	_, redacted := f.(*events.TurnRedacted)
	_, pruned := f.(*events.TurnPruned)
	return redacted || pruned
}

func receiptOf(e events.Recorded) string {
	if f, ok := e.Fact.(*events.SessionErased); ok {
		return f.ReceiptID
	}
	if f, ok := e.Fact.(*events.IdentityErased); ok {
		return f.ReceiptID
	}
	return ""
}

// askedAfter reads "partition-sequence-salt".
func askedAfter(id string) (events.Position, bool) {
	parts := strings.Split(id, "-")
	if len(parts) != 3 {
		return events.Position{}, false
	}
	at, err := events.ParsePosition(parts[0] + ":" + parts[1])
	return at, err == nil
}

// stamped is a receipt with the time at which the log recorded it.
type stamped struct {
	*events.ErasureReceipt
	at time.Time
}

// anyReceipt stands for the id of any receipt.
const anyReceipt = ""

// sessionReceipts returns the receipts that were written of a session's erasure at a position, by their places.
func sessionReceipts(ctx context.Context, log Reader, at events.Position, session, receipt string) (
	map[string]*stamped, error,
) {
	return receiptsAmong(log.Session(ctx, session, at.Seq, maxSeq), at, receipt)
}

// identityReceipts returns the receipts that were written of an identity's erasure at a position, by their places.
func identityReceipts(ctx context.Context, log Reader, at events.Position, identity, receipt string) (
	map[string]*stamped, error,
) {
	return receiptsAmong(log.Identity(ctx, identity), at, receipt)
}

func receiptsAmong(all iter.Seq2[events.Recorded, error], at events.Position, receipt string) (
	map[string]*stamped, error,
) {
	out := map[string]*stamped{}
	for e, err := range all {
		if err != nil {
			return nil, err
		}
		f, ok := e.Fact.(*events.ErasureReceipt)
		if ok && e.Position.Seq > at.Seq && out[f.Place] == nil && (receipt == anyReceipt || f.ReceiptID == receipt) {
			out[f.Place] = &stamped{f, e.Time}
		}
	}
	return out, nil
}

// progressKey returns the key of an erasure's progress in the notes.
func progressKey(receipt, session string) string {
	key := "erasing." + base64.RawURLEncoding.EncodeToString([]byte(receipt))
	if session != "" {
		key += "." + base64.RawURLEncoding.EncodeToString([]byte(session))
	}
	return key
}
