package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
)

// EventQuery selects events of the log. Zero values are no bounds. From is the position after which the reading begins
// and To the last one wanted, written as "0:42,1:17". Since is inclusive, Until exclusive.
type EventQuery struct {
	SessionID, IdentityID string
	Types                 []string
	From, To              string
	Since, Until          time.Time
	// Follow continues with new events.
	Follow bool
}

func (q EventQuery) path() string {
	query := []string{
		"session_id", q.SessionID, "identity_id", q.IdentityID, "from", q.From, "to", q.To,
		"since", moment(q.Since), "until", moment(q.Until),
	}
	for _, t := range q.Types {
		query = append(query, "type", t)
	}
	if q.Follow {
		query = append(query, "follow", "true")
	}
	return withQuery("/events", query...)
}

// Event is a CloudEvent in JSON form, on one line. JSON is valid until the next event.
type Event struct {
	Position events.Position
	JSON     json.RawMessage
}

// Events is one reading of the log, for one reader.
type Events struct {
	client *Client
	query  EventQuery
	at     events.Cursor
	from   events.Cursor
	end    events.Cursor
	opened bool // whether the current or last connection was opened
	keys   []string
}

// Events makes a reading of the log; All begins it.
func (c *Client) Events(q EventQuery) *Events {
	return &Events{client: c, query: q, at: events.Cursor{}}
}

// Position is how far the reading is, as EventQuery.From takes it.
func (e *Events) Position() string { return e.at.String() }

// Progress returns how many places of the log the reading has passed, and how many there were when it began. Events
// that the query leaves out count only when a later event arrives.
func (e *Events) Progress() (passed, total uint64) {
	for k, end := range e.end {
		total += end - min(e.from[k], end)
		passed += min(e.at[k], end) - min(e.from[k], end)
	}
	return passed, total
}

// MetadataKeys returns the metadata keys that the server's views show; the events themselves have all keys. It returns
// nil before the reading has begun.
func (e *Events) MetadataKeys() []string { return e.keys }

// All returns the events in order, each once. If the connection breaks, or the server restarts, it continues after the
// last event, for as long as the client's patience lasts; until the reading has begun, Tries bounds the attempts too.
// An error comes last. Without Follow the reading ends at the log's end.
func (e *Events) All(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		wait, cfg := pauses(), e.client.cfg
		for tries, since := uint(1), time.Now(); ; tries++ {
			before, began := e.at.String(), time.Now()
			err := e.connection(ctx, func(ev Event) bool { return yield(ev, nil) })
			if err == nil {
				return
			}
			// A follower may have waited for long. Its patience begins when the connection breaks.
			if e.at.String() != before || e.opened && time.Since(began) > time.Second {
				tries, since = 1, time.Now()
				wait.Reset()
			}
			err = request{retry: repeatable}.classify(ctx, err)
			stop, final := errors.AsType[*backoff.PermanentError](err)
			switch {
			case ctx.Err() != nil:
				err = ctx.Err()
			case final:
				err = stop.Err
			case (len(e.from) > 0 || tries < cfg.Tries) && time.Since(since) < cfg.Patience:
				pause.For(ctx, wait.NextBackOff())
				continue
			}
			yield(Event{}, attempted("read events", err))
			return
		}
	}
}

const (
	// openPatience is how long a reading may take to begin: a server that has just started reads the log once before
	// it answers.
	openPatience = 10 * time.Minute
	// silence is three heartbeats of the server: after that the connection counts as dead.
	silence = 45 * time.Second
	// longestEvent bounds an event in bytes; the log accepts less.
	longestEvent = 32 << 20
)

// errBroken: the server broke off in the middle.
var errBroken = errors.New("the stream of events broke off")

// connection reads the events of one connection. It returns nil when the reading is over: the server ended it, or the
// caller stopped.
func (e *Events) connection(ctx context.Context, yield func(Event) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(openPatience, func() { cancel(fmt.Errorf("%w: nothing came for too long", errBroken)) })
	defer quiet.Stop()
	resp, err := e.open(ctx)
	if e.opened = err == nil; err != nil {
		return caused(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	e.noteBounds(resp.Header)
	lines := bufio.NewScanner(&audible{resp.Body, quiet})
	lines.Buffer(make([]byte, 256<<10), longestEvent)
	lines.Split(wholeLines)
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			continue // a heartbeat
		}
		at, err := positionOf(line)
		if err != nil {
			return err
		}
		// The position moves on before the event is passed to the caller: a caller that stops at an event has received
		// it.
		e.at.Pass(at)
		if !yield(Event{at, line}) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return caused(ctx, err)
	}
	end, err := events.ParsePositions(resp.Trailer.Get(headerPosition))
	if err != nil {
		return errBroken
	}
	e.pass(end)
	return nil
}

func (e *Events) pass(all []events.Position) {
	for _, p := range all {
		e.at.Pass(p)
	}
}

// Headers of the stream.
const (
	headerFrom     = "Turnledger-From"
	headerEnd      = "Turnledger-End"
	headerPosition = "Turnledger-Position"
	headerMetadata = "Turnledger-Metadata-Keys"
)

func (e *Events) open(ctx context.Context) (*http.Response, error) {
	q := e.query
	if len(e.at) > 0 {
		q.From = e.at.String()
	}
	resp, err := e.client.open(ctx, http.MethodGet, q.path(), nil, nil)
	if err == nil && resp.Header.Get(headerFrom) == "" {
		_ = resp.Body.Close()
		return nil, backoff.Permanent(ErrAnswer)
	}
	return resp, err
}

// noteBounds reads the bounds of the reading from the headers of its first connection.
func (e *Events) noteBounds(h http.Header) {
	if len(e.from) > 0 {
		return
	}
	from, _ := events.ParsePositions(h.Get(headerFrom)) // used only for progress
	end, _ := events.ParsePositions(h.Get(headerEnd))
	e.from, e.end = events.NewCursor(from...), events.NewCursor(end...)
	if keys, told := h[headerMetadata]; told {
		e.keys = strings.FieldsFunc(keys[0], func(r rune) bool { return r == ',' })
	}
	e.pass(from)
}

// caused returns why this package ended the context, or err if it did not.
func caused(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errBroken) {
		return cause
	}
	return err
}

// audible is a reader that resets the timer of silence whenever bytes arrive.
type audible struct {
	io.Reader
	quiet *time.Timer
}

func (a *audible) Read(b []byte) (int, error) {
	n, err := a.Reader.Read(b)
	a.quiet.Reset(silence)
	return n, err
}

// wholeLines splits at line feeds. It drops a last line without one, since it was cut off.
func wholeLines(data []byte, _ bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// positionMark begins an event's position in the server's JSON. It stands before the data, and quotes in earlier texts
// are escaped, so the first match is the position.
var positionMark = []byte(`,"position":"`)

func positionOf(line []byte) (events.Position, error) {
	_, rest, _ := bytes.Cut(line, positionMark)
	text, _, _ := bytes.Cut(rest, []byte{'"'})
	at, err := events.ParsePosition(string(text))
	if err != nil {
		err = backoff.Permanent(fmt.Errorf("%w: %w", ErrAnswer, err))
	}
	return at, err
}
