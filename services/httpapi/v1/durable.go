package v1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
)

// durables adds the read path of the protocol Durable Streams 1.0, in its JSON mode: a session's events as a stream.
// Nobody appends to, makes or deletes a stream by it.
func (a *surface) durables() {
	read := op("read-session-stream", 0, "GET /streams/sessions/{session_id}",
		"Read a session's events by the protocol Durable Streams", unread, notFound).
		any(access.EventsRead | access.ContextRead)
	read.Responses = map[string]*huma.Response{"200": {Content: map[string]*huma.MediaType{
		"application/json":  {Schema: &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeObject}}},
		"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString, Description: "Events data and control"}},
	}}, "204": {Description: "Nothing came while a long poll waited, or nothing comes any more"}}
	raw[anyAnswer](a, a.sessionStream, read.takesLong())
}

type durableIn struct {
	SessionID id       `path:"session_id"`
	Offset    []string `query:"offset,explode" doc:"Where to go on: a Stream-Next-Offset, -1 for the beginning (default), or now"`
	Live      string   `query:"live" doc:"long-poll or sse: wait for what comes; needs offset"`
	Cursor    string   `query:"cursor" doc:"The Stream-Cursor of the answer before"`
	IfNone    string   `header:"If-None-Match" doc:"The ETag of an answer that the caller has"`
}

// Headers of the protocol.
const (
	headerNext     = "Stream-Next-Offset"
	headerCursor   = "Stream-Cursor"
	headerUpToDate = "Stream-Up-To-Date"
	headerClosed   = "Stream-Closed"
)

// Modes of a live reading.
const (
	longPoll = "long-poll"
	liveSSE  = "sse"
)

// Bounds of a stream: what one answer holds, how long a long poll waits, and how often a caller's key is looked at.
const (
	mostMessages = 1000
	mostChunk    = 1 << 20
	pollTime     = 20 * time.Second
)

// offsetOf returns the offset of a sequence. Offsets have one width, so that they compare as texts.
func offsetOf(seq uint64) string { return fmt.Sprintf("%020d", seq) }

// durable is one reading of a session's stream.
type durable struct {
	*surface

	session   string
	partition int
	// tail is the sequence of the session's last event, at which closed streams end.
	tail   uint64
	closed bool
	// bare: the caller may not see the settings of requests.
	bare bool
	// at is how far was read; upToDate: nothing stood behind it.
	at       uint64
	upToDate bool
}

// sessionStream answers one reading.
func (a *surface) sessionStream(w http.ResponseWriter, r *http.Request, in *durableIn) error {
	d, err := a.openDurable(r.Context(), in)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Cache-Control", "private, no-store")
	if r.Method == http.MethodHead {
		d.at, d.upToDate = d.tail, true
		d.answer(w, http.StatusOK, nil)
		return nil
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a test's writer may have no deadlines
	switch in.Live {
	case liveSSE:
		return d.sse(w, r, in.Cursor)
	case longPoll:
		return d.poll(w, r, in.Cursor)
	}
	from, now := d.at, len(in.Offset) == 1 && in.Offset[0] == "now"
	messages, err := d.next(r.Context())
	if err != nil {
		return err
	}
	if !now {
		// A withdrawal is the session's newest event when it comes, so that no older answer is confirmed after it.
		tag := fmt.Sprintf(`"%d-%d-%d-%d-%t"`, d.partition, from, d.at, d.tail, d.closed)
		if h.Set("ETag", tag); in.IfNone == tag {
			d.answer(w, http.StatusNotModified, nil)
			return nil
		}
	}
	d.answer(w, http.StatusOK, listOf(messages))
	return nil
}

// openDurable reads where the stream stands, and what is asked of it.
func (a *surface) openDurable(ctx context.Context, in *durableIn) (*durable, error) {
	caller := bound(ctx)
	scopes := a.scopes(ctx)
	if caller == "" && scopes&access.EventsRead == 0 {
		return nil, &access.MissingScopes{Scopes: access.EventsRead}
	}
	if err := validLive(in.Live, in.Offset); err != nil {
		return nil, err
	}
	d := &durable{surface: a, session: in.SessionID.text(), bare: scopes&access.EventsRead == 0}
	if err := d.look(ctx); err != nil {
		return nil, err
	}
	at, err := d.offset(in.Offset)
	d.at = min(at, d.tail)
	return d, err
}

// validLive refuses a mode that there is not, or one without an offset.
func validLive(live string, offset []string) error {
	if live != "" && live != longPoll && live != liveSSE {
		return problems.New(problems.CodeMalformed, "live: must be long-poll or sse")
	}
	if live != "" && len(offset) == 0 {
		return problems.New(problems.CodeMalformed, "offset: is required with live")
	}
	return nil
}

// scopes returns what the caller may do: everything on a server that asks nobody.
func (a *surface) scopes(ctx context.Context) access.Scopes {
	if s := access.CallOf(ctx).Caller.Scopes; s != 0 {
		return s
	}
	return ^access.Scopes(0)
}

// look reads the end of the session. A session that there is not fails.
func (d *durable) look(ctx context.Context) error {
	reading, err := d.cfg.Sessions.Read(ctx, services.Ask{SessionID: d.session, Own: true})
	if err != nil {
		return err
	}
	s := reading.State
	if s.Applied == 0 && s.Erased == 0 {
		return services.ErrNoSession
	}
	d.partition, d.tail, d.closed = reading.Position.Partition, max(s.Applied, s.Erased), s.Erased != 0
	return nil
}

func (d *durable) offset(asked []string) (uint64, error) {
	switch {
	case len(asked) == 0, len(asked) == 1 && asked[0] == "-1":
		return 0, nil
	case len(asked) == 1 && asked[0] == "now":
		return d.tail, nil
	case len(asked) == 1 && len(asked[0]) == len(offsetOf(0)):
		if seq, err := strconv.ParseUint(asked[0], 10, 64); err == nil {
			return seq, nil
		}
	}
	return 0, problems.New(problems.CodeMalformed, "offset: must be one Stream-Next-Offset, -1 or now")
}

// open opens a reading of the events from where the stream was read to.
func (d *durable) open(ctx context.Context, follow bool) (services.EventStream, error) {
	return d.cfg.Events.OpenEvents(ctx, services.EventQuery{
		SessionID: d.session, From: []events.Position{{Partition: d.partition, Seq: d.at}}, Follow: follow,
	})
}

// next returns the events that stand behind where the stream was read to, up to what one answer holds.
func (d *durable) next(ctx context.Context) (messages []json.RawMessage, err error) {
	stream, err := d.open(ctx, false)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for size := 0; ; {
		batch, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			d.at, d.upToDate = max(d.at, d.tail), true
			return messages, nil
		}
		if err != nil {
			return nil, err
		}
		for _, e := range batch {
			if size += len(e.JSON); len(messages) == mostMessages || size > mostChunk && len(messages) > 0 {
				d.upToDate = false
				return messages, nil
			}
			messages = append(messages, d.message(e))
		}
	}
}

// message notes that an event was read, and returns it as the caller may see it.
func (d *durable) message(e services.Event) json.RawMessage {
	d.at = max(d.at, e.Position.Seq)
	d.tail = max(d.tail, d.at)
	out := append(json.RawMessage(nil), e.JSON...)
	if d.bare {
		out = withoutSettings(out)
	}
	return out
}

// withoutSettings takes the settings of requests out of an event, where its parts have them, too.
func withoutSettings(event json.RawMessage) json.RawMessage {
	var of struct{ members, data map[string]json.RawMessage }
	if json.Unmarshal(event, &of.members) != nil || json.Unmarshal(of.members["data"], &of.data) != nil {
		return event // never happens: an event is an object with data
	}
	delete(of.data, "settings")
	var parts []map[string]json.RawMessage
	if json.Unmarshal(of.data["parts"], &parts) == nil {
		for _, part := range parts {
			delete(part, "settings")
		}
		of.data["parts"], _ = json.Marshal(parts)
	}
	of.members["data"], _ = json.Marshal(of.data)
	out, _ := json.Marshal(of.members)
	return out
}

func listOf(messages []json.RawMessage) []byte {
	if messages == nil {
		return []byte("[]")
	}
	out, _ := json.Marshal(messages) // each is JSON
	return out
}

// answer writes an answer with where the stream goes on.
func (d *durable) answer(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	if status != http.StatusNoContent {
		h.Set("Content-Type", "application/json")
	}
	h.Set(headerNext, offsetOf(d.at))
	if d.upToDate {
		h.Set(headerUpToDate, "true")
		if d.closed {
			h.Set(headerClosed, "true")
		}
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // JSON, or events of JSON; an error means that the client has gone
}

// cursorAfter returns the cursor of a live answer: the number of the current stretch of time, and always above that of
// the answer before, so that no cache makes a reader go in circles.
func cursorAfter(before string, now time.Time) string {
	const epoch, stretch = 1728432000, 20 // as the protocol has them, in seconds
	cursor := (now.Unix() - epoch) / stretch
	if last, err := strconv.ParseInt(before, 10, 64); err == nil && last >= cursor {
		cursor = last + 1
	}
	return strconv.FormatInt(cursor, 10)
}

// poll answers with what stands behind the offset, or with what comes while it waits.
func (d *durable) poll(w http.ResponseWriter, r *http.Request, cursor string) error {
	ctx, end := d.wire.UntilStopped(r.Context())
	defer end()
	messages, err := d.next(ctx)
	if err == nil && messages == nil && !d.closed {
		messages, err = d.wait(ctx, d.wire.Still(r, 0))
	}
	if err != nil {
		return err
	}
	w.Header().Set(headerCursor, cursorAfter(cursor, d.cfg.Now()))
	if messages == nil {
		d.answer(w, http.StatusNoContent, nil)
		return nil
	}
	d.answer(w, http.StatusOK, listOf(messages))
	return nil
}

// wait waits for events, but not for long.
func (d *durable) wait(ctx context.Context, still func(context.Context) error) ([]json.RawMessage, error) {
	stream, err := d.open(ctx, true)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for began := time.Now(); time.Since(began) < pollTime; {
		messages, err := d.come(ctx, stream, still)
		if err != nil || messages != nil || ctx.Err() != nil {
			return messages, err
		}
	}
	return nil, nil
}

// come returns the events that come within a second. It looks whether the caller may still read and the stream goes on.
func (d *durable) come(
	ctx context.Context, stream services.EventStream, still func(context.Context) error,
) (messages []json.RawMessage, err error) {
	brief, cancel := context.WithTimeout(ctx, askedAfter)
	batch, err := stream.Next(brief)
	cancel()
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	if err := still(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errRevoked, err)
	}
	for _, e := range batch {
		messages = append(messages, d.message(e))
	}
	if messages == nil || ctx.Err() != nil {
		return messages, nil
	}
	err = d.look(ctx)
	d.upToDate = d.at >= d.tail // no end is told before what came meanwhile
	return messages, err
}

// sse sends what stands behind the offset and what comes, until the stream is closed or its client goes.
func (d *durable) sse(w http.ResponseWriter, r *http.Request, cursor string) error {
	ctx, end := d.wire.UntilStopped(r.Context())
	defer end()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy must not buffer the stream
	w.WriteHeader(http.StatusOK)
	out := &durableSSE{durable: d, out: d.wire.NewPatient(w, nil), cursor: cursor}
	defer out.out.End()
	err := out.run(ctx, d.wire.Still(r, 0), d.wire.Heartbeat())
	if err != nil && ctx.Err() == nil && !errors.Is(err, errRevoked) && !errors.Is(err, os.ErrDeadlineExceeded) {
		d.wire.Logger().Warn("a stream of a session broke off", "session_id", d.session, "err", safeText(err))
	}
	return nil
}

// durableSSE writes server-sent events of the protocol.
type durableSSE struct {
	*durable

	out    *wire.Patient
	cursor string
}

func (s *durableSSE) run(ctx context.Context, still func(context.Context) error, heartbeat time.Duration) error {
	if err := s.catchUp(ctx, still); err != nil || s.closed {
		return err
	}
	stream, err := s.open(ctx, true)
	if err != nil {
		return err
	}
	defer stream.Close()
	for sent := time.Now(); ctx.Err() == nil && (!s.closed || !s.upToDate); {
		messages, err := s.come(ctx, stream, still)
		switch {
		case err != nil:
		case messages != nil:
			sent, err = time.Now(), s.send(messages)
		case time.Since(sent) >= heartbeat:
			sent, err = time.Now(), s.out.Send([]byte(": heartbeat\n\n"))
		}
		if err != nil {
			return err
		}
		if s.closed && !s.upToDate {
			return s.catchUp(ctx, still)
		}
	}
	return nil
}

// catchUp sends what stands behind where the stream was read to.
func (s *durableSSE) catchUp(ctx context.Context, still func(context.Context) error) error {
	for s.upToDate = false; !s.upToDate; {
		if err := still(ctx); err != nil {
			return fmt.Errorf("%w: %w", errRevoked, err)
		}
		messages, err := s.next(ctx)
		if err == nil {
			err = s.send(messages)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// control is the event that says where the stream goes on.
type control struct {
	Next     string `json:"streamNextOffset"`
	Cursor   string `json:"streamCursor,omitempty"`
	UpToDate bool   `json:"upToDate,omitempty"`
	Closed   bool   `json:"streamClosed,omitempty"`
}

func (s *durableSSE) send(messages []json.RawMessage) error {
	c := control{Next: offsetOf(s.at), UpToDate: s.upToDate, Closed: s.upToDate && s.closed}
	if !c.Closed {
		s.cursor = cursorAfter(s.cursor, s.cfg.Now())
		c.Cursor = s.cursor
	}
	said, err := json.Marshal(c)
	if err != nil {
		return err
	}
	text := ""
	if messages != nil {
		text = "event: data\ndata: " + string(listOf(messages)) + "\n\n"
	}
	return s.out.Send([]byte(text + "event: control\ndata: " + string(said) + "\n\n"))
}
