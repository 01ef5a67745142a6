package v1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
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

// follow says whether a reading goes on with what comes.
type follow bool

// UnmarshalText reads true or false.
func (f *follow) UnmarshalText(b []byte) error {
	on, err := strconv.ParseBool(string(b))
	if *f = follow(on); err != nil {
		return invalid("", "must be true or false")
	}
	return nil
}

// eventParameters are the names of the query's parameters.
var eventParameters = parametersOf(reflect.TypeFor[eventsIn]())

func parametersOf(in reflect.Type) (names []string) {
	for f := range in.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("query"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// known refuses a parameter that is misspelt, and a filter that is empty: with either, a
// caller who asked for a part of the log would get all of it.
func known(asked url.Values) error {
	for name, values := range asked {
		if !slices.Contains(eventParameters, name) {
			return invalid(
				printable(name, "query"),
				"is no parameter of this call: there are "+strings.Join(eventParameters, ", "),
			)
		}
		if strings.HasSuffix(name, "_id") && slices.Contains(values, "") {
			return invalid(name, "must not be empty: leave it out for all")
		}
	}
	return nil
}

// query returns the query that the parameters name. The port checks their meaning, since that needs the log.
func (in *eventsIn) query() services.EventQuery {
	q := services.EventQuery{
		SessionID: in.SessionID.text(), IdentityID: in.IdentityID, From: in.From, To: in.To, Min: in.MinPosition,
		Since: in.Since.Time, Until: in.Until.Time, Follow: bool(in.Follow),
	}
	if in.LastEventID != nil {
		q.From = in.LastEventID
	}
	for _, list := range in.Type {
		for t := range strings.SplitSeq(list, ",") {
			if t = strings.TrimSpace(t); t != "" {
				q.Types = append(q.Types, t)
			}
		}
	}
	return q
}

// streams adds the call that may go on for ever. It has no deadline: it ends with its
// client, or with EndStreams.
func (a *surface) streams() {
	read := op("read-events", access.EventsRead, "GET /events",
		"Read the log, as CloudEvents: NDJSON, or server-sent events")
	text := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: "CloudEvents in JSON form"}}
	read.Responses = map[string]*huma.Response{"200": {Content: map[string]*huma.MediaType{
		"application/x-ndjson": text, "text/event-stream": text,
	}}}
	raw[anyAnswer](a, a.events, read.takesLong().boundsItself())
}

// events opens a reading, and writes it.
func (a *surface) events(w http.ResponseWriter, r *http.Request, in *eventsIn) error {
	// net/http takes the end of the time to read a request for the end of its client.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a writer of a test may have none
	if err := known(r.URL.Query()); err != nil {
		return err
	}
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
	out.may = a.wire.Still(r.Header, access.EventsRead)
	if err := out.run(ctx, a.wire.Heartbeat()); err != nil {
		a.brokenOff(ctx, err, q.Follow, stream)
	}
	return nil
}

// brokenOff ends a stream that has no end of its own, so that the client can't take this for the end.
func (a *surface) brokenOff(ctx context.Context, err error, follow bool, stream services.EventStream) {
	c, logger, ended := wire.CallOf(ctx), a.wire.Logger(), a.wire.Stopped()
	switch at := stream.Position().String(); {
	case errors.Is(err, errRevoked):
		ended = true
		logger.Info("a reader of events may not read any more", "caller", c.Caller.Name, "position", at)
	case errors.Is(err, os.ErrDeadlineExceeded):
		logger.Info("a reader of events takes nothing and is given up", "position", at)
	case ctx.Err() == nil:
		logger.Warn("a stream of events broke off", "err", tellable(err), "position", at)
	}
	if ended && follow {
		return // a follower's stream has no end that this could be taken for: no trailer says so
	}
	c.Failed(err)
	panic(http.ErrAbortHandler)
}

// bound limits the query of a bound caller to the sessions of the caller's identity.
func (a *surface) bound(ctx context.Context, q *services.EventQuery) error {
	own := bound(ctx)
	switch {
	case own == "":
		return nil
	case q.IdentityID != "" && q.IdentityID != own:
		return noIdentity()
	case q.SessionID != "":
		return a.reach(ctx, q.SessionID)
	default:
		q.IdentityID = own
		return nil
	}
}

// Headers of a stream of events: where the reading begins, where the log or the query
// ended when it began and, as a trailer, how far it came. The trailer stands for the
// whole: without it the stream was broken off. The events are as the log has them, so
// that whoever folds them is told which keys of metadata views show, separated by commas.
const (
	HeaderFrom     = "Turnledger-From"
	HeaderEnd      = "Turnledger-End"
	HeaderPosition = "Turnledger-Position"
	HeaderMetadata = "Turnledger-Metadata-Keys"
)

// eventWriter writes a stream of events: a JSON object a line, or server-sent events.
// An empty line of NDJSON and a comment of SSE are heartbeats. A client that takes nothing
// for too long is given up; it has a reading of its own, so that nobody waits for it meanwhile.
type eventWriter struct {
	header http.Header
	out    *wire.Patient
	stream services.EventStream
	sse    bool
	at     events.Cursor
	buf    []byte
	// may reports whether the reader still may read, and is asked again once a while.
	may   func(context.Context) error
	asked time.Time
}

// askedAfter is the pause between two checks that a reader may still read.
const askedAfter = time.Second

// errRevoked: the reader may not read any more.
var errRevoked = errors.New("the reader's key or token has ended")

// revoked asks whether the reader still may read.
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
	h.Set("X-Accel-Buffering", "no") // a proxy must not hold back what a follower waits for
	h.Set(HeaderFrom, stream.From().String())
	h.Set(HeaderEnd, stream.End().String())
	h.Set("Trailer", HeaderPosition)
	at := events.Cursor{}
	maps.Copy(at, stream.From())
	return &eventWriter{header: h, stream: stream, sse: sse, at: at, asked: time.Now()}
}

// run writes until the stream ends, or for the length of ctx. Each wait for an event is at most a heartbeat
// long, so that a client that went away is noticed.
func (e *eventWriter) run(ctx context.Context, heartbeat time.Duration) error {
	// The client learns at once that it is connected.
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

// heartbeat of SSE takes the id on, over what the query leaves out.
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

// end says that this is all. A browser's EventSource would ask again, so that SSE has
// an event for it.
func (e *eventWriter) end() error {
	at := e.reached()
	if e.sse {
		e.buf = fmt.Appendf(e.buf, "event: end\nid: %s\ndata: {}\n\n", at)
	}
	err := e.flush()
	e.header.Set(HeaderPosition, at)
	return err
}

// flush sends what is written.
func (e *eventWriter) flush() error {
	err := e.out.Send(e.buf)
	e.buf = e.buf[:0]
	return err
}
