package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
)

// erasures adds the calls that forget.
func (a *API) erasures(api huma.API) {
	accepted := func(op huma.Operation) huma.Operation {
		op.DefaultStatus = http.StatusAccepted
		return with(op, metaOptional, true)
	}
	register(a, api, accepted(operation(
		"erase-session", TurnsRedact, http.MethodDelete, onSession,
		"Close a session for ever, and erase its texts everywhere", unread, notFound,
	)), a.eraseSession)
	register(a, api, accepted(operation(
		"erase-identity", TurnsRedact, http.MethodDelete, "/identities/{identity_id}",
		"Erase all sessions of an identity, also those linked later", unread,
	)), a.eraseIdentity)
}

// receipts adds the call that tells of them.
func (a *API) receipts(api huma.API) {
	op := operation(
		"get-receipt", TurnsRedact, http.MethodGet, "/receipts/{id}", "See what an erasure has reached", notFound,
	)
	register(a, api, with(op, metaBounds, true), a.receipt)
}

type eraseBody struct {
	Reason     string `json:"reason,omitempty" doc:"Kept in the log for ever: no text of a turn"`
	RedactedBy string `json:"redacted_by,omitempty" doc:"Who asked; kept in the log for ever"`
}

func (b eraseBody) erasure() services.Erasure {
	return services.Erasure{Reason: b.Reason, By: b.RedactedBy}
}

type eraseSessionIn struct {
	SessionID string `path:"session_id"`
	body[eraseBody]
}

type erasedOut struct{ Body erasedJSON }

type erasedJSON struct {
	ReceiptID string `json:"receipt_id" doc:"GET /v1/receipts/{id} tells what the erasure has reached" example:"0-42-9f86d081884c"`
}

func (a *API) eraseSession(ctx context.Context, in *eraseSessionIn) (*erasedOut, error) {
	if err := sessionID(ctx, in.SessionID); err != nil {
		return nil, err
	}
	id, err := a.cfg.Erasures.EraseSession(ctx, in.SessionID, in.value.erasure())
	return &erasedOut{erasedJSON{id}}, err
}

type eraseIdentityIn struct {
	IdentityID string `path:"identity_id"`
	body[eraseBody]
}

func (a *API) eraseIdentity(ctx context.Context, in *eraseIdentityIn) (*erasedOut, error) {
	if err := validID("identity_id", in.IdentityID); err != nil {
		return nil, err
	}
	id, err := a.cfg.Erasures.EraseIdentity(ctx, in.IdentityID, in.value.erasure())
	return &erasedOut{erasedJSON{id}}, err
}

type receiptIn struct {
	ID string `path:"id" doc:"receipt_id of an erasure, or the position of a redaction"`
}

type receiptOut struct{ Body receiptJSON }

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
	Places      []receiptPlaceJSON `json:"places" nullable:"false"`
	Progress    *progressJSON      `json:"progress,omitempty" doc:"While it runs, once it has begun"`
}

type receiptPlaceJSON struct {
	Place    string     `json:"place" doc:"log, or the name of a view" example:"log"`
	State    string     `json:"state" enum:"waiting,done"`
	Erased   *int       `json:"erased" doc:"Events, of the log; turns of a session, or sessions of an identity, of a view"`
	ErasedAt *time.Time `json:"erased_at" doc:"When that was written down"`
}

type progressJSON struct {
	Events       int      `json:"events,omitempty" doc:"To erase in all; of an identity it is not known"`
	Erased       int      `json:"erased"`
	Sessions     int      `json:"sessions,omitempty"`
	SessionsDone int      `json:"sessions_done,omitempty"`
	ETASeconds   *float64 `json:"eta_seconds" doc:"At the rate so far"`
}

func (a *API) receipt(ctx context.Context, in *receiptIn) (*receiptOut, error) {
	r, err := a.cfg.Receipts.Receipt(ctx, in.ID)
	if err == nil {
		err = a.concerned(ctx, &r)
	}
	if err != nil {
		return nil, err
	}
	return &receiptOut{newReceiptJSON(&r, a.cfg.Now())}, nil
}

// concerned says services.ErrNoReceipt of a receipt that is not about the identity that the caller
// is bound to, nor about a session of it. What was erased keeps its link.
func (a *API) concerned(ctx context.Context, r *services.Receipt) error {
	identity := callOf(ctx).caller.IdentityID
	switch {
	case identity == "":
		return nil
	case r.SessionID == "" && r.IdentityID == identity:
		return nil
	case r.SessionID == "":
		return services.ErrNoReceipt
	}
	err := a.reach(ctx, r.SessionID)
	var p *problem
	if errors.As(err, &p) && p.Status == http.StatusNotFound {
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
	var last time.Time
	for _, p := range r.Places {
		row := receiptPlaceJSON{Place: p.Place, State: "waiting", Erased: p.Erased, ErasedAt: optionalTime(p.At)}
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

// etaOf gives the seconds left at the rate so far, nil before there is one.
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
