package v1

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/v1/uimessage"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
)

// ticketLife is how long the ticket for an answer's stream is good.
const ticketLife = 10 * time.Minute

// onStreams begins the paths of streams, and ofAnswer stands before the name of an answer in them.
const onStreams, ofAnswer = "/v1/streams/sessions/", "/answers/"

// answerName names an answer in the path of its stream: by its turn, or, where it answers what tools put out, by its
// turn and its position.
func answerName(s services.Step) string {
	if s.Extends {
		return s.TurnID.String() + "@" + s.Asked.String()
	}
	return s.TurnID.String()
}

// locate answers with where the stream of an answer is, and a ticket for it: its reader sends no key.
func (a *surface) locate(w http.ResponseWriter, r *http.Request, status int, s services.Step) error {
	name := answerName(s)
	path := onStreams + s.SessionID + ofAnswer + name
	t, err := a.cfg.Tokens.IssueToken(r.Context(), access.TokenAsk{
		IdentityID: bound(r.Context()), Scopes: access.ContextRead, Life: ticketLife, Path: path,
	})
	if err != nil {
		return err
	}
	ticket, _ := access.TokenBody(t.Text)
	h := w.Header()
	h.Set("Location", onStreams+url.PathEscape(s.SessionID)+ofAnswer+name+"?ticket="+url.QueryEscape(ticket))
	stands(h, s)
	w.WriteHeader(status)
	return nil
}

// tokenOf returns the token of a request's caller. Only the stream of an answer takes one, a ticket, in its address.
func tokenOf(r *http.Request) (string, bool) {
	if token, ok := wire.Bearer(r.Header); ok || len(r.Header["Authorization"]) > 0 {
		return token, ok
	}
	if !strings.HasPrefix(r.URL.Path, onStreams) || !strings.Contains(r.URL.Path, ofAnswer) {
		return "", false
	}
	tickets := r.URL.Query()["ticket"]
	if len(tickets) != 1 {
		return "", false
	}
	return access.TokenText(tickets[0]), true
}

type answerStreamIn struct {
	SessionID id       `path:"session_id"`
	Answer    string   `path:"turn_id" doc:"The turn; of an answer to what tools put out, the turn, @ and the position of that"`
	Offset    []string `query:"offset,explode" doc:"Where to go on: a Stream-Next-Offset, -1 for the beginning (default), or now"`
	Live      string   `query:"live" doc:"long-poll or sse: wait for what comes; needs offset"`
	Cursor    string   `query:"cursor" doc:"The Stream-Cursor of the answer before"`
	Ticket    string   `query:"ticket" doc:"Of the Location that named the stream, in the place of a key"`
}

// answerStream answers one reading of the stream of an answer: its chunks, which then is closed.
func (a *surface) answerStream(w http.ResponseWriter, r *http.Request, in *answerStreamIn) error {
	if err := validLive(in.Live, in.Offset); err != nil {
		return err
	}
	response, err := a.responseOf(r.Context(), in)
	if err != nil {
		return err
	}
	ctx, end := a.wire.UntilStopped(r.Context())
	defer end()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go wire.UntilRevoked(ctx, a.wire.Still(r, access.ContextRead), stop)
	t := newTold()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	watching.Go(func() {
		who := services.Caller{Identity: bound(ctx), May: func(context.Context, string) error { return nil }}
		t.close(a.cfg.Responses.WatchResponse(ctx, response, who, t))
	})
	t.settle(ctx, settled)
	if err := t.failed(); err != nil {
		return uiGone(err)
	}
	return a.readAnswer(ctx, w, r, in, t)
}

// settled is how long nothing comes of an answer that was told up to where it is.
const settled = 100 * time.Millisecond

// uiGone returns the problem of an answer that is not there.
func uiGone(err error) error {
	if errors.Is(err, services.ErrNoResponse) {
		return decide.ErrTurnNotFound
	}
	return err
}

// responseOf returns the id of the response that an answer is.
func (a *surface) responseOf(ctx context.Context, in *answerStreamIn) (string, error) {
	name, position, named := strings.Cut(in.Answer, "@")
	turn, err := uuid.Parse(name)
	if err != nil {
		return "", decide.ErrTurnNotFound
	}
	found, err := a.cfg.Lookup.FindTurn(ctx, in.SessionID.text(), turn)
	if err != nil {
		return "", err
	}
	var at events.Position
	if named {
		if at, err = events.ParsePosition(position); err != nil {
			return "", decide.ErrTurnNotFound
		}
	} else {
		reading, err := a.cfg.Sessions.Read(ctx, services.Ask{SessionID: in.SessionID.text(), Own: true})
		if err != nil {
			return "", err
		}
		at = events.Position{Partition: reading.Position.Partition, Seq: found.Turn.Started}
	}
	return items.ResponseID(items.Step{Position: at, TurnID: turn}), nil
}

// told are the chunks of an answer that were told so far. It is a services.Listener.
type told struct {
	*uimessage.Stream

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	chunks  []json.RawMessage
	begun   bool
	closed  bool
	err     error
}

func newTold() *told {
	t := &told{changed: make(chan struct{})}
	t.Stream = uimessage.NewStream(func(chunk any) {
		raw, _ := json.Marshal(chunk) // made of texts and JSON
		t.change(func() { t.begun, t.chunks = true, append(t.chunks, raw) })
	}, said)
	return t
}

func (t *told) change(does func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	does()
	close(t.changed)
	t.changed = make(chan struct{})
}

// close notes that nothing more is told.
func (t *told) close(err error) { t.change(func() { t.closed, t.err = true, err }) }

// failed returns why nothing was told.
func (t *told) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun {
		return nil
	}
	return t.err
}

// from returns the chunks behind an offset, where the stream ends now, whether more may come, and what is closed at the
// next change.
func (t *told) from(at int) (news []json.RawMessage, end int, closed bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end = len(t.chunks)
	return t.chunks[min(at, end):end:end], end, t.closed && t.err == nil, t.changed
}

// settle waits until nothing came for a while, or nothing comes any more.
func (t *told) settle(ctx context.Context, quiet time.Duration) {
	for {
		t.mu.Lock()
		changed, closed := t.changed, t.closed
		t.mu.Unlock()
		wait := time.NewTimer(quiet)
		select {
		case <-changed:
			wait.Stop()
		case <-wait.C:
			return
		case <-ctx.Done():
			wait.Stop()
			return
		}
		if closed {
			return
		}
	}
}

// readAnswer answers with what was told, as durable does of the events of a session.
func (a *surface) readAnswer(
	ctx context.Context, w http.ResponseWriter, r *http.Request, in *answerStreamIn, t *told,
) error {
	d := &durable{surface: a, upToDate: true}
	_, end, closed, _ := t.from(0)
	d.tail, d.closed = uint64(end), closed //nolint:gosec // counts chunks
	at, err := d.offset(in.Offset)
	if err != nil {
		return err
	}
	d.at = min(at, d.tail)
	w.Header().Set("Cache-Control", "private, no-store")
	if r.Method == http.MethodHead {
		d.at = d.tail
		d.answer(w, http.StatusOK, nil)
		return nil
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a test's writer may have no deadlines
	switch in.Live {
	case liveSSE:
		return a.answerSSE(ctx, w, in.Cursor, d, t)
	case longPoll:
		news := d.take(t)
		for began := time.Now(); news == nil && !d.closed && time.Since(began) < pollTime && ctx.Err() == nil; {
			t.wait(ctx, int(d.at), time.Second) //nolint:gosec // counts chunks
			news = d.take(t)
		}
		w.Header().Set(headerCursor, cursorAfter(in.Cursor, d.cfg.Now()))
		if news == nil {
			d.answer(w, http.StatusNoContent, nil)
			return nil
		}
		d.answer(w, http.StatusOK, listOf(news))
		return nil
	}
	d.answer(w, http.StatusOK, listOf(d.take(t)))
	return nil
}

// take returns the chunks behind where the stream was read to, which then is its end.
func (d *durable) take(t *told) []json.RawMessage {
	news, end, closed, _ := t.from(int(d.at))                 //nolint:gosec // counts chunks
	d.at, d.tail, d.closed = uint64(end), uint64(end), closed //nolint:gosec // counts chunks
	if len(news) == 0 {
		return nil
	}
	return news
}

// wait waits for a chunk behind an offset, or the end, but not for long.
func (t *told) wait(ctx context.Context, at int, most time.Duration) {
	news, _, closed, changed := t.from(at)
	if len(news) > 0 || closed {
		return
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// answerSSE sends what was told and what comes, until the answer has ended.
func (a *surface) answerSSE(
	ctx context.Context, w http.ResponseWriter, cursor string, d *durable, t *told,
) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy must not buffer the stream
	w.WriteHeader(http.StatusOK)
	out := &durableSSE{durable: d, out: a.wire.NewPatient(w, nil), cursor: cursor}
	defer out.out.End()
	for first, sent := true, time.Now(); ctx.Err() == nil; first = false {
		news := d.take(t)
		var err error
		switch {
		case news != nil, first, d.closed:
			sent, err = time.Now(), out.send(news)
		case time.Since(sent) >= a.wire.Heartbeat():
			sent, err = time.Now(), out.out.Send([]byte(": heartbeat\n\n"))
		}
		if err != nil || d.closed || t.over() {
			return nil //nolint:nilerr // its client has gone
		}
		t.wait(ctx, int(d.at), time.Second) //nolint:gosec // counts chunks
	}
	return nil
}

// over reports whether the answer's maker was lost: its reader comes again.
func (t *told) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed && t.err != nil
}
