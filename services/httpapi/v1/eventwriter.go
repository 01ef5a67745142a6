package v1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

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

// askedAfter is how long a reader who may read is not looked at again.
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
