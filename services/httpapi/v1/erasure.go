package v1

import (
	"context"
	"errors"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// erasures adds the calls that erase.
func (a *surface) erasures() {
	call(a, a.eraseSession, op("erase-session", access.TurnsRedact, "DELETE "+onSession,
		"Close a session for ever, and erase its texts everywhere", unread, notFound).accepted())
	call(a, a.eraseIdentity, op("erase-identity", access.TurnsRedact, "DELETE /identities/{identity_id}",
		"Erase all sessions of an identity, also those linked later", unread).accepted())
}

// receipts adds the calls that show receipts.
func (a *surface) receipts() {
	call(a, a.listReceipts, op("list-receipts", access.TurnsRedact, "GET /receipts",
		"List the receipts of redactions and erasures, the newest first"))
	call(a, a.receipt, op("get-receipt", access.TurnsRedact, "GET /receipts/{id}",
		"See what an erasure has reached", notFound).boundsItself())
}

type eraseBody struct {
	Reason string `json:"reason,omitempty" doc:"Kept in the log for ever: no text of a turn"`
	By     string `json:"redacted_by,omitempty" doc:"Who asked; kept in the log for ever"`
}

func (b *eraseBody) erasure() services.Erasure { return services.Erasure{Reason: b.Reason, By: b.By} }

type eraseSessionIn struct {
	SessionID id `path:"session_id"`
	Body      *eraseBody
}

type erasedJSON struct {
	ReceiptID string `json:"receipt_id" doc:"GET /v1/receipts/{id} tells what the erasure has reached" example:"0-42-9f86d081884c"`
}

func (a *surface) eraseSession(ctx context.Context, in *eraseSessionIn) (erasedJSON, error) {
	receipt, err := a.cfg.Erasures.EraseSession(ctx, in.SessionID.text(), in.Body.erasure())
	return erasedJSON{receipt}, err
}

type eraseIdentityIn struct {
	IdentityID id `path:"identity_id"`
	Body       *eraseBody
}

func (a *surface) eraseIdentity(ctx context.Context, in *eraseIdentityIn) (erasedJSON, error) {
	receipt, err := a.cfg.Erasures.EraseIdentity(ctx, in.IdentityID.text(), in.Body.erasure())
	return erasedJSON{receipt}, err
}

type receiptIn struct {
	ID string `path:"id" doc:"receipt_id of an erasure, or the position of a redaction"`
}

type receiptJSON struct {
	ReceiptID   string             `json:"receipt_id"`
	Kind        string             `json:"kind" enum:"session,identity,turn"`
	SessionID   *string            `json:"session_id"`
	IdentityID  *string            `json:"identity_id"`
	TurnID      *string            `json:"turn_id"`
	State       string             `json:"state" enum:"running,complete"`
	Position    events.Position    `json:"position" doc:"Of the event that asks for the erasure" example:"0:42"`
	RequestedAt time.Time          `json:"requested_at"`
	CompletedAt *time.Time         `json:"completed_at"`
	Branches    *int               `json:"branches" doc:"Branches that lost turns which they shared; null of a turn"`
	SharedTurns *int               `json:"shared_turns" doc:"Turns that these branches lost, each counted once"`
	Places      []receiptPlaceJSON `json:"places" nullable:"false"`
	Progress    *progressJSON      `json:"progress,omitempty" doc:"While it runs, once it has begun"`
}

type receiptPlaceJSON struct {
	Place    string     `json:"place" doc:"log, or the name of a view" example:"log"`
	State    string     `json:"state" enum:"waiting,done"`
	Erased   *int       `json:"erased" doc:"Events, of the log; turns of a session, or sessions of an identity, of a view"`
	ErasedAt *time.Time `json:"erased_at" doc:"When that was written down"`
	Why      string     `json:"why,omitempty" doc:"Why it is not proved that a text is gone, and what an operator must do"`
}

type progressJSON struct {
	Events       int      `json:"events,omitempty" doc:"To erase in all; of an identity it is not known"`
	Erased       int      `json:"erased"`
	Sessions     int      `json:"sessions,omitempty"`
	SessionsDone int      `json:"sessions_done,omitempty"`
	ETASeconds   *float64 `json:"eta_seconds" doc:"At the rate so far"`
}

// Bounds of a page of receipts.
const (
	defaultReceipts = 50
	maxReceipts     = 200
)

type listReceiptsIn struct {
	Limit  number `query:"limit" doc:"At most so many receipts; 50 by default, clamped to 200"`
	Cursor string `query:"cursor" doc:"next_cursor of the page before"`
}

type receiptsJSON struct {
	Receipts   []receiptJSON `json:"receipts" nullable:"false" doc:"Newest first; a page that is not the last may be short"`
	NextCursor *string       `json:"next_cursor" doc:"For the next page; null at the end"`
}

func (a *surface) listReceipts(ctx context.Context, in *listReceiptsIn) (receiptsJSON, error) {
	limit := defaultReceipts
	if in.Limit > 0 {
		limit = min(int(in.Limit), maxReceipts)
	}
	page, err := a.cfg.Receipts.Receipts(ctx, services.ReceiptsAsk{Limit: limit, Cursor: in.Cursor})
	now := a.cfg.Now()
	list := mapped(page.Receipts, func(r *services.Receipt) receiptJSON { return newReceiptJSON(r, now) })
	return receiptsJSON{list, optional(&page.NextCursor)}, err
}

func (a *surface) receipt(ctx context.Context, in *receiptIn) (receiptJSON, error) {
	r, err := a.cfg.Receipts.Receipt(ctx, in.ID)
	if err == nil {
		err = a.concerned(ctx, &r)
	}
	return newReceiptJSON(&r, a.cfg.Now()), err
}

// concerned returns services.ErrNoReceipt if a receipt belongs neither to the caller's identity nor to a session of
// that identity. An erased session keeps its link, so its receipts can be checked too.
func (a *surface) concerned(ctx context.Context, r *services.Receipt) error {
	identity := bound(ctx)
	switch {
	case identity == "", r.SessionID == "" && r.IdentityID == identity:
		return nil
	case r.SessionID == "":
		return services.ErrNoReceipt
	}
	err := a.cfg.Reach(ctx, r.SessionID)
	if errors.Is(err, services.ErrNoSession) {
		return services.ErrNoReceipt
	}
	return err
}

func newReceiptJSON(r *services.Receipt, now time.Time) receiptJSON {
	out := receiptJSON{
		ReceiptID: r.ID, Kind: "session", SessionID: optional(&r.SessionID), IdentityID: optional(&r.IdentityID),
		TurnID: optional(&r.TurnID),
		State:  "running", Position: r.Position, RequestedAt: r.RequestedAt, Places: []receiptPlaceJSON{},
	}
	switch {
	case r.TurnID != "":
		out.Kind = "turn"
	case r.SessionID == "":
		out.Kind = "identity"
	}
	if r.Shared != nil {
		out.Branches, out.SharedTurns = &r.Shared.Branches, &r.Shared.Turns
	}
	var last time.Time
	for _, p := range r.Places {
		row := receiptPlaceJSON{
			Place: p.Place, State: "waiting", Erased: p.Erased, ErasedAt: optionalTime(p.At), Why: p.Why,
		}
		if p.Done {
			row.State = "done"
		}
		if p.At.After(last) {
			last = p.At
		}
		out.Places = append(out.Places, row)
	}
	if r.Complete() {
		out.State, out.CompletedAt = "complete", optionalTime(last)
	}
	if p := r.Progress; p != nil {
		out.Progress = &progressJSON{p.Events, p.Erased, p.Sessions, p.SessionsDone, etaOf(p, now)}
	}
	return out
}

// etaOf returns the seconds left at the rate so far, or nil if there is no rate yet.
func etaOf(p *services.ErasureProgress, now time.Time) *float64 {
	done, of := p.Erased, p.Events
	if p.Sessions > 0 {
		done, of = p.SessionsDone, p.Sessions
	}
	if done <= 0 || of < done {
		return nil
	}
	left := now.Sub(p.Began).Seconds() * float64(of-done) / float64(done)
	return &left
}

// retains adds the call that applies the retention.
func (a *surface) retains() {
	call(a, a.sweep, op("sweep", access.Admin, "POST /retention",
		"Take out what is too old, or with dry_run only count it"))
}

type sweepIn struct {
	DryRun string `query:"dry_run" doc:"true: count only"`
}

type sweptJSON struct {
	DryRun    bool `json:"dry_run"`
	Anonymous struct {
		Sessions int `json:"sessions"`
		Events   int `json:"events"`
	} `json:"anonymous" doc:"Sessions that leave the log"`
	Linked struct {
		Sessions int `json:"sessions"`
		Turns    int `json:"turns"`
	} `json:"linked" doc:"Turns that are redacted"`
}

func (a *surface) sweep(ctx context.Context, in *sweepIn) (out sweptJSON, err error) {
	if in.DryRun != "" && in.DryRun != "true" && in.DryRun != "false" {
		return out, invalid("dry_run", "must be true or false")
	}
	out.DryRun = in.DryRun == "true"
	sweep := a.cfg.Retention.Sweep
	if out.DryRun {
		sweep = a.cfg.Retention.DrySweep
	}
	n, err := sweep(ctx)
	out.Anonymous.Sessions, out.Anonymous.Events = n.Sessions, n.Events
	out.Linked.Sessions, out.Linked.Turns = n.LinkedSessions, n.Turns
	return out, err
}
