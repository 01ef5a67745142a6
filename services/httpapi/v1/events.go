package v1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

type eventsIn struct {
	SessionID   id        `query:"session_id" doc:"Events of one session"`
	IdentityID  string    `query:"identity_id" doc:"All events of the sessions that are linked to it"`
	Type        []string  `query:"type,explode" doc:"Event types; several with commas between, or repeated"`
	From        positions `query:"from" doc:"Positions, such as 0:42,1:17; the reading goes on after them"`
	To          positions `query:"to" doc:"Positions; the last ones wanted"`
	Since       moment    `query:"since" doc:"Events recorded at or after that time"`
	Until       moment    `query:"until" doc:"Events recorded before that time"`
	Follow      follow    `query:"follow" doc:"true: go on with what comes"`
	LastEventID positions `header:"Last-Event-ID" doc:"The id of the last event that was received; goes before from"`
	MinPosition positions `query:"min_position" doc:"The log is at least that far"`
	Accept      string    `header:"Accept" doc:"text/event-stream for server-sent events, else NDJSON"`
}

// follow says whether a reading continues with new events.
type follow bool

// UnmarshalText reads true or false.
func (f *follow) UnmarshalText(b []byte) error {
	on, err := strconv.ParseBool(string(b))
	if *f = follow(on); err != nil {
		return invalid("", "must be true or false")
	}
	return nil
}

// query returns the query that the parameters describe. The port checks whether it makes sense, since that needs the
// log.
func (in *eventsIn) query() services.EventQuery {
	q := services.EventQuery{
		SessionID: in.SessionID.text(), IdentityID: in.IdentityID, From: in.From, To: in.To, Min: in.MinPosition,
		Types: in.Type, Since: in.Since.Time, Until: in.Until.Time, Follow: bool(in.Follow),
	}
	if in.LastEventID != nil {
		q.From = in.LastEventID
	}
	return q
}

// streams adds the call that may last for ever. It has no deadline: it ends when its client goes, or with EndStreams.
func (a *surface) streams() {
	read := op("read-events", access.EventsRead, "GET /events",
		"Read the log, as CloudEvents: NDJSON, or server-sent events")
	text := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: "CloudEvents in JSON form"}}
	read.Responses = map[string]*huma.Response{"200": {Content: map[string]*huma.MediaType{
		"application/x-ndjson": text, "text/event-stream": text,
	}}}
	raw[anyAnswer](a, a.events, read.takesLong().admitsItself())
}

// events opens a reading, and writes it.
func (a *surface) events(w http.ResponseWriter, r *http.Request, in *eventsIn) error {
	// Without this, the read deadline would pass during the stream, and net/http would report that as a client that has
	// gone.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a test's writer may have no deadlines
	q := in.query()
	if err := a.bound(r.Context(), &q); err != nil {
		return err
	}
	stream, err := a.cfg.Events.OpenEvents(r.Context(), q)
	if err != nil {
		return err
	}
	ctx, end := a.wire.UntilStopped(r.Context())
	defer end()
	defer stream.Close()
	if a.cfg.MetadataKeys != nil {
		w.Header().Set(HeaderMetadata, strings.Join(a.cfg.MetadataKeys, ","))
	}
	out := newEventWriter(w, stream, strings.Contains(in.Accept, "text/event-stream"))
	if r.Method == http.MethodHead {
		return nil
	}
	out.out = a.wire.NewPatient(w, nil)
	defer out.out.End()
	out.may = a.wire.Still(r, access.EventsRead)
	if err := out.run(ctx, a.wire.Heartbeat()); err != nil {
		a.brokenOff(ctx, err, q.Follow, stream)
	}
	return nil
}

// brokenOff ends an unfinished stream in a way that the client can't take for the end.
func (a *surface) brokenOff(ctx context.Context, err error, follow bool, stream services.EventStream) {
	c, logger, ended := wire.CallOf(ctx), a.wire.Logger(), a.wire.Stopped()
	switch at := stream.Position().String(); {
	case errors.Is(err, errRevoked):
		ended = true
		logger.Info("a reader of events may not read any more", "caller", c.Caller.Name, "position", at)
	case errors.Is(err, os.ErrDeadlineExceeded):
		logger.Info("a reader of events takes nothing and is given up", "position", at)
	case ctx.Err() == nil:
		logger.Warn("a stream of events broke off", "err", safeText(err), "position", at)
	}
	if ended && follow {
		return // a follower's stream has no proper end, so the missing trailer is enough
	}
	c.Failed(err)
	panic(http.ErrAbortHandler)
}

// bound restricts the query of a bound caller to the sessions of the caller's identity.
func (a *surface) bound(ctx context.Context, q *services.EventQuery) error {
	switch own := bound(ctx); {
	case own == "":
	case q.IdentityID != "" && q.IdentityID != own:
		return noIdentity()
	case q.SessionID == "":
		q.IdentityID = own
	}
	return a.cfg.Admit(ctx, services.Entry{SessionID: q.SessionID})
}

// Headers of a stream of events: where the reading begins, where the log or the query ended when it began and, as a
// trailer, how far it came. A stream without the trailer was broken off. The events have all metadata, so a client that
// folds them also needs the header with the keys that views show, separated by commas.
const (
	HeaderFrom     = "Turnledger-From"
	HeaderEnd      = "Turnledger-End"
	HeaderPosition = "Turnledger-Position"
	HeaderMetadata = "Turnledger-Metadata-Keys"
)

// eventWriter writes a stream of events: a JSON object per line, or server-sent events. The heartbeats are empty lines
// of NDJSON or comments of SSE. A client that reads nothing for too long is disconnected. It has its own reading, so
// meanwhile no other client waits for it.
type eventWriter struct {
	header http.Header
	out    *wire.Patient
	stream services.EventStream
	sse    bool
	at     events.Cursor
	buf    []byte
	// may returns an error once the reader may not read any more. It is called regularly.
	may   func(context.Context) error
	asked time.Time
}

// askedAfter is the pause between two checks that a reader may still read.
const askedAfter = time.Second

// errRevoked: the reader may not read any more.
var errRevoked = errors.New("the reader's key or token has ended")

// revoked checks whether the reader may still read.
func (e *eventWriter) revoked(ctx context.Context) error {
	if time.Since(e.asked) < askedAfter {
		return nil
	}
	e.asked = time.Now()
	if err := e.may(ctx); err != nil {
		return fmt.Errorf("%w: %w", errRevoked, err)
	}
	return nil
}

// newEventWriter sets the headers.
func newEventWriter(w http.ResponseWriter, stream services.EventStream, sse bool) *eventWriter {
	h := w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	if sse {
		h.Set("Content-Type", "text/event-stream")
	}
	h.Set("X-Accel-Buffering", "no") // a proxy must not buffer the stream
	h.Set(HeaderFrom, stream.From().String())
	h.Set(HeaderEnd, stream.End().String())
	h.Set("Trailer", HeaderPosition)
	at := events.Cursor{}
	maps.Copy(at, stream.From())
	return &eventWriter{header: h, stream: stream, sse: sse, at: at, asked: time.Now()}
}

// run writes until the stream or ctx ends. It waits at most one heartbeat for an event, so that it notices when the
// client has gone.
func (e *eventWriter) run(ctx context.Context, heartbeat time.Duration) error {
	// Sending the headers at once tells the client that it is connected.
	if err := e.flush(); err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, heartbeat)
		batch, err := e.stream.Next(wait)
		cancel()
		if err := e.revoked(ctx); err != nil {
			return err
		}
		switch {
		case len(batch) > 0:
			e.events(batch)
		case errors.Is(err, io.EOF):
			return e.end()
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			e.heartbeat()
		default:
			return err
		}
		if err := e.flush(); err != nil {
			return err
		}
	}
}

func (e *eventWriter) events(batch []services.Event) {
	for _, ev := range batch {
		if !e.sse {
			e.buf = append(append(e.buf, ev.JSON...), '\n')
			continue
		}
		e.at.Pass(ev.Position)
		e.buf = fmt.Appendf(e.buf, "id: %s\ndata: %s\n\n", e.at, ev.JSON)
	}
}

// heartbeat sends an empty line, or with SSE a comment and an id that is past the events that the query leaves out.
func (e *eventWriter) heartbeat() {
	if e.sse {
		e.buf = fmt.Appendf(e.buf, ": heartbeat\nid: %s\n\n", e.reached())
	} else {
		e.buf = append(e.buf, '\n')
	}
}

func (e *eventWriter) reached() string {
	for k, seq := range e.stream.Position() {
		e.at.Pass(events.Position{Partition: k, Seq: seq})
	}
	return e.at.String()
}

// end marks the proper end of the stream. A browser's EventSource would reconnect, so SSE has an event that means the
// end.
func (e *eventWriter) end() error {
	at := e.reached()
	if e.sse {
		e.buf = fmt.Appendf(e.buf, "event: end\nid: %s\ndata: {}\n\n", at)
	}
	err := e.flush()
	e.header.Set(HeaderPosition, at)
	return err
}

// flush sends what was written.
func (e *eventWriter) flush() error {
	err := e.out.Send(e.buf)
	e.buf = e.buf[:0]
	return err
}
