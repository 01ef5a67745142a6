package console

import (
	"context"
	"net/http"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// views shows how far the views are.
func (s *surface) views(ctx context.Context, _ *http.Request) (view, error) {
	list, err := s.cfg.Projections.Projections(ctx)
	return view{"views", "Views", list}, err
}

// letterRow is a dead letter.
type letterRow struct {
	projections.DeadLetter
	Href string
}

// letters are the dead letters of this process's views.
type letters struct {
	Letters []letterRow
	// Failed are the views whose letters could not be read.
	Failed []string
	// More is how many letters the page leaves out.
	More int
}

// mostLetters is how many dead letters a page shows.
const mostLetters = 200

// deadLetters shows the events that views could not apply.
func (s *surface) deadLetters(ctx context.Context, _ *http.Request) (view, error) {
	var out letters
	for _, q := range s.cfg.DeadLetters {
		list, err := q.DeadLetters(ctx)
		if err != nil {
			wire.CallOf(ctx).Failed(err)
			out.Failed = append(out.Failed, q.Name())
		}
		for _, l := range list {
			if len(out.Letters) == mostLetters {
				out.More++
				continue
			}
			row := letterRow{DeadLetter: l}
			if l.SessionID != "" {
				at := l.Position.String()
				row.Href = sessionHref(l.SessionID) + "?at=" + at + "#" + anchorOf(at)
			}
			out.Letters = append(out.Letters, row)
		}
	}
	return view{"deadletters", "Dead letters", out}, nil
}

// receiptView is the page of receipts: the form, and the receipt that was asked for.
type receiptView struct {
	ID       string
	Receipt  *services.Receipt
	Complete bool
	// Href is the page of the session of a redacted turn.
	Href string
}

// receipts shows the receipt that the form asks for.
func (s *surface) receipts(ctx context.Context, r *http.Request) (view, error) {
	out := receiptView{ID: r.URL.Query().Get("id")}
	if out.ID == "" {
		return view{"receipts", "Receipts", out}, nil
	}
	if s.cfg.Receipts == nil {
		return view{}, services.ErrNoReceipt
	}
	receipt, err := s.cfg.Receipts.Receipt(ctx, out.ID)
	if err != nil {
		return view{}, err
	}
	out.Receipt, out.Complete = &receipt, receipt.Complete()
	if receipt.TurnID != "" && receipt.SessionID != "" {
		out.Href = sessionHref(receipt.SessionID) + "?at=" + receipt.Position.String()
	}
	return view{"receipts", "Receipts", out}, nil
}

// keyList is the page of keys. None is set where this process reads no file of keys.
type keyList struct {
	None bool
	Keys []access.Key
}

// keys shows the keys, with the commands that make and revoke them.
func (s *surface) keys(context.Context, *http.Request) (view, error) {
	if s.cfg.Keys == nil {
		return view{"keys", "Keys", keyList{None: true}}, nil
	}
	list, err := s.cfg.Keys()
	return view{"keys", "Keys", keyList{Keys: list}}, err
}
