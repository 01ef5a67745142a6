package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// viewsView is the page of the views.
type viewsView struct {
	Rows []projections.Status
	Kept []*keptView
	// Rebuilt is the rebuild that the address names; nil for none.
	Rebuilt *rebuilt
}

// rebuilt is a rebuild that was begun in the console. One of the three is set once it has ended.
type rebuilt struct {
	Name                    string
	Generation              uint64
	Served, Failed, Dropped bool
	// Last is when it ran, if this process knows that.
	Last ran
}

// ran is when a rebuild ran; zero if that is not known.
type ran struct{ Begun, Done time.Time }

// Took returns how long it ran.
func (r ran) Took() time.Duration { return r.Done.Sub(r.Begun) }

// rebuiltOf returns what has become of the rebuild that an address names; nil if it names none.
func rebuiltOf(query url.Values, list []projections.Status) *rebuilt {
	n, err := strconv.ParseUint(query.Get("generation"), 10, 64)
	out := &rebuilt{Name: query.Get("view"), Generation: n}
	known, filling, served := false, false, uint64(0)
	for _, one := range list {
		if one.Name != out.Name {
			continue
		}
		known = true
		switch one.State {
		case rebuilding:
			filling = filling || one.Generation == n
		case rebuildFailed:
			out.Failed = out.Failed || one.Generation == n
		default:
			served = max(served, one.Generation)
			if one.Generation == n {
				out.Last = ran{one.RebuildBegun, one.RebuildDone}
			}
		}
	}
	if err != nil || !known {
		return nil
	}
	out.Served = !filling && served >= n
	out.Dropped = !filling && !out.Failed && !out.Served
	return out
}

// keptView is a view that this process can rebuild and verify.
type keptView struct {
	Name string
	// Rebuilding is set while a rebuild is under way; it has done Done of so many events.
	Rebuilding bool
	Done, Of   uint64
	ETA        time.Duration
	// Last is the last rebuild of this process that was done.
	Last           ran
	Rebuild        string
	Cancel, Verify link
}

// Percent returns how much of a rebuild is done.
func (k *keptView) Percent() uint64 { return 100 * k.Done / max(k.Of, 1) }

// States of a partition that a rebuild fills, or has failed to fill.
const (
	rebuilding    = "rebuilding"
	rebuildFailed = "rebuild_failed"
)

// views shows how far the views are.
func (s *surface) views(ctx context.Context, r *http.Request) (view, error) {
	list, err := s.cfg.Projections.Projections(ctx)
	list = withoutSwitched(list)
	out := viewsView{Rows: list, Rebuilt: rebuiltOf(r.URL.Query(), list)}
	kept := map[string]*keptView{}
	for _, one := range list {
		if !one.Rebuildable || s.cfg.Keeper == nil {
			continue
		}
		k := kept[one.Name]
		if k == nil {
			at := root + "/views/" + url.PathEscape(one.Name)
			k = &keptView{
				Name: one.Name, Rebuild: at + "/rebuild", Cancel: link{"Break the rebuild off", at + "/cancel"},
				Verify: link{"Compare with the log", at + "/verify"},
			}
			kept[one.Name], out.Kept = k, append(out.Kept, k)
		}
		if !one.RebuildDone.IsZero() {
			k.Last = ran{one.RebuildBegun, one.RebuildDone}
		}
		if one.State == rebuilding {
			k.Rebuilding = true
			k.Done, k.Of, k.ETA = k.Done+one.Position.Seq, k.Of+one.Head.Seq, max(k.ETA, one.ETA)
		}
	}
	return view{"views", "Views", out}, err
}

// withoutSwitched returns the rows without those of a generation that is filled and served already: its rebuild only
// clears away what was served before.
func withoutSwitched(list []projections.Status) (out []projections.Status) {
	for _, one := range list {
		if one.State == rebuilding && one.Generation > 0 &&
			slices.ContainsFunc(list, func(other projections.Status) bool {
				return other.Name == one.Name && other.Generation == one.Generation && other.State != rebuilding &&
					other.State != rebuildFailed
			}) {
			continue
		}
		out = append(out, one)
	}
	return out
}

// letterRow is a dead letter.
type letterRow struct {
	projections.DeadLetter
	Href  string
	Retry link
	Drop  string
}

// letters are the dead letters of this process's views.
type letters struct {
	Letters []letterRow
	// Failed are the views whose letters could not be read.
	Failed []string
	// More is how many letters the page leaves out. Retried says how a retry ended: applied or refused.
	More    int
	Retried string
}

// mostLetters is how many dead letters a page shows.
const mostLetters = 200

// deadLetters shows the events that views could not apply.
func (s *surface) deadLetters(ctx context.Context, r *http.Request) (view, error) {
	out := letters{Retried: r.URL.Query().Get("retried")}
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
			here := root + "/deadletters/" + url.PathEscape(q.Name()) + "/" + l.Position.String()
			row := letterRow{DeadLetter: l, Retry: link{"Retry", here + "/retry"}, Drop: here + "/drop"}
			if l.SessionID != "" {
				at := l.Position.String()
				row.Href = sessionHref(l.SessionID) + "?at=" + at + "#" + anchorOf(at)
			}
			out.Letters = append(out.Letters, row)
		}
	}
	return view{"deadletters", "Dead letters", out}, nil
}

// receiptView is the page of a receipt, or the list of receipts.
type receiptView struct {
	ID       string
	Receipt  *services.Receipt
	Complete bool
	// Href is the page of the session of a redacted turn, Log shows what the log has left of a session.
	Href, Log string
	// Sessions are those that were erased with an identity, as far as the page has room.
	Sessions []link
	Count    int
	// JSON is the address of the receipt in the API, in an open console; API is the call.
	JSON, API string
	// Words say what the places are.
	Words map[string]string
	List  []receiptRow
	// Older is the address of the next page of the list.
	Older string
}

func (v receiptView) crumbs() []link {
	if v.Receipt == nil {
		return nil
	}
	return []link{{"Receipts", root + "/receipts"}}
}

// receiptRow is a receipt of the list.
type receiptRow struct {
	services.Receipt
	What, Href string
}

// Done returns how many places have carried an erasure out.
func (r receiptRow) Done() (n int) {
	for _, p := range r.Places {
		if p.Done {
			n++
		}
	}
	return n
}

// receiptsOnPage is how many receipts a page lists.
const receiptsOnPage = 50

// receipts shows the receipt that the form asks for, or the list of all.
func (s *surface) receipts(ctx context.Context, r *http.Request) (view, error) {
	out := receiptView{ID: r.URL.Query().Get("id"), Words: s.cfg.Places}
	if s.cfg.Receipts == nil {
		return view{}, services.ErrNoReceipt
	}
	if out.ID == "" {
		err := s.receiptList(ctx, r.URL.Query().Get("cursor"), &out)
		return view{"receipts", "Receipts", out}, err
	}
	receipt, err := s.cfg.Receipts.Receipt(ctx, out.ID)
	if err != nil {
		return view{}, err
	}
	out.ID, out.Receipt, out.Complete = receipt.ID, &receipt, receipt.Complete()
	out.API = "/v1/receipts/" + url.PathEscape(receipt.ID)
	if s.cfg.Auth == nil {
		out.JSON = out.API
	}
	if err := s.erasedSessions(ctx, &out); err != nil {
		return view{}, err
	}
	if receipt.TurnID != "" && receipt.SessionID != "" {
		out.Href = sessionHref(receipt.SessionID) + "?at=" + receipt.Position.String()
	}
	switch {
	case receipt.SessionID != "":
		out.Log = root + "/log?" + url.Values{"session_id": {receipt.SessionID}}.Encode()
	case receipt.IdentityID != "":
		out.Log = root + "/log?" + url.Values{"identity_id": {receipt.IdentityID}}.Encode()
	}
	return view{"receipts", "Receipt", out}, nil
}

func (s *surface) receiptList(ctx context.Context, cursor string, out *receiptView) error {
	page, err := s.cfg.Receipts.Receipts(ctx, services.ReceiptsAsk{Limit: receiptsOnPage, Cursor: cursor})
	for _, one := range page.Receipts {
		row := receiptRow{one, "session", receiptHref(one.ID)}
		switch {
		case one.TurnID != "":
			row.What, row.IdentityID = "turn", one.Owner
		case one.SessionID == "":
			row.What = "identity, with its sessions"
		case one.IdentityID != "":
			row.What, row.SessionID = "identity, with its sessions", ""
		}
		same := func(r receiptRow) bool { return r.ID == row.ID }
		if i := slices.IndexFunc(out.List, same); i < 0 {
			out.List = append(out.List, row)
		} else if one.SessionID == "" {
			out.List[i] = row // an identity's receipt stands for those of its sessions
		}
	}
	if page.NextCursor != "" {
		out.Older = root + "/receipts?" + url.Values{"cursor": {page.NextCursor}}.Encode()
	}
	return err
}

// receiptHref returns the address of a receipt's page.
func receiptHref(id string) string { return root + "/receipts?" + url.Values{"id": {id}}.Encode() }

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
