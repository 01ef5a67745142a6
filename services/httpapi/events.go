package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
)

type eventsIn struct {
	SessionID   string   `query:"session_id" doc:"Events of one session"`
	IdentityID  string   `query:"identity_id" doc:"All events of the sessions that are linked to it"`
	Type        []string `query:"type,explode" doc:"Event types; several with commas between, or repeated"`
	From        string   `query:"from" doc:"Positions, such as 0:42,1:17; the reading goes on after them"`
	To          string   `query:"to" doc:"Positions; the last ones wanted"`
	Since       string   `query:"since" doc:"Events recorded at or after that time"`
	Until       string   `query:"until" doc:"Events recorded before that time"`
	Follow      string   `query:"follow" doc:"true: go on with what comes"`
	LastEventID string   `header:"Last-Event-ID" doc:"The id of the last event that was received; goes before from"`
	MinPosition string   `query:"min_position" doc:"The log is at least that far"`
	Accept      string   `header:"Accept" doc:"text/event-stream for server-sent events, else NDJSON"`

	asked url.Values
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

// Resolve keeps what was asked, for known.
func (in *eventsIn) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	in.asked = u.Query()
	return nil
}

// known refuses a parameter that is misspelt, and a filter that is empty: either would give the whole log to
// somebody who asked for a part of it.
func (in *eventsIn) known() error {
	for name, values := range in.asked {
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

// query reads the parameters; what they mean is held against the log by the port.
func (in *eventsIn) query() (q services.EventQuery, err error) {
	if err := in.known(); err != nil {
		return q, err
	}
	q = services.EventQuery{SessionID: in.SessionID, IdentityID: in.IdentityID}
	for _, list := range in.Type {
		for t := range strings.SplitSeq(list, ",") {
			if t = strings.TrimSpace(t); t != "" {
				q.Types = append(q.Types, t)
			}
		}
	}
	if q.From, err = positionsIn("from", in.From); err != nil {
		return q, err
	}
	if in.LastEventID != "" {
		if q.From, err = positionsIn("Last-Event-ID", in.LastEventID); err != nil {
			return q, err
		}
	}
	if q.To, err = positionsIn("to", in.To); err != nil {
		return q, err
	}
	if q.Min, err = minPosition(in.MinPosition); err != nil {
		return q, err
	}
	if q.Since, err = moment("since", in.Since); err != nil {
		return q, err
	}
	if q.Until, err = moment("until", in.Until); err != nil {
		return q, err
	}
	if in.Follow != "" {
		if q.Follow, err = strconv.ParseBool(in.Follow); err != nil {
			return q, invalid("follow", "must be true or false")
		}
	}
	return q, nil
}

func positionsIn(field, s string) ([]events.Position, error) {
	if s == "" {
		return nil, nil
	}
	at, err := events.ParsePositions(s)
	if err != nil {
		return nil, invalid(
			field, "must be a position such as 0:42, or several of different partitions with commas between",
		)
	}
	return at, nil
}

// eventsOut writes itself.
type eventsOut struct{ Body func(huma.Context) }

// streams adds the call that may go on for ever. It has no deadline: it ends with its
// client, or with EndStreams.
func (a *API) streams(api huma.API) {
	op := operation(
		"read-events", EventsRead, http.MethodGet, "/events",
		"Read the log, as CloudEvents: NDJSON, or server-sent events",
	)
	op.Metadata[metaStream], op.Metadata[metaBounds], op.Metadata[metaLong] = true, true, true
	// net/http takes the end of the time to read a request for the end of its client.
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		_, w := humago.Unwrap(ctx)
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a writer of a test may have none
		next(ctx)
	}}
	huma.Register(api, op, func(ctx context.Context, in *eventsIn) (*eventsOut, error) {
		out, err := a.events(ctx, in)
		if err != nil {
			p := problemOf(err)
			callOf(ctx).err = p
			return nil, p
		}
		return out, nil
	})
}

// events opens a reading; what goes wrong until then is a problem.
func (a *API) events(ctx context.Context, in *eventsIn) (*eventsOut, error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	if q.SessionID != "" {
		if err := sessionID(ctx, q.SessionID); err != nil {
			return nil, err
		}
	}
	c := callOf(ctx)
	if err := a.bound(ctx, &q); err != nil {
		return nil, err
	}
	stream, err := a.cfg.Events.OpenEvents(ctx, q)
	if err != nil {
		return nil, err
	}
	ctx, end := a.untilStopped(ctx)
	return &eventsOut{func(hctx huma.Context) {
		defer end()
		defer stream.Close()
		r, w := humago.Unwrap(hctx)
		if a.cfg.MetadataKeys != nil {
			w.Header().Set(HeaderMetadata, strings.Join(a.cfg.MetadataKeys, ","))
		}
		out := newEventWriter(
			w, stream, strings.Contains(in.Accept, "text/event-stream"), a.cfg.StreamPatience,
			a.stillMay(r.Header, EventsRead),
		)
		if r.Method == http.MethodHead {
			return
		}
		if err := out.run(ctx, a.cfg.Heartbeat); err != nil {
			ended := a.stopped()
			switch at := stream.Position().String(); {
			case errors.Is(err, errRevoked):
				ended = true
				a.cfg.Logger.Info("a reader of events may not read any more", "caller", c.caller.Name, "position", at)
			case errors.Is(err, os.ErrDeadlineExceeded):
				a.cfg.Logger.Info("a reader of events takes nothing and is given up", "position", at)
			case ctx.Err() == nil:
				a.cfg.Logger.Warn("a stream of events broke off", "err", tellable(err), "position", at)
			}
			if ended && q.Follow {
				return // a follower's stream has no end that this could be taken for: no trailer says so
			}
			c.err = err
			// The client must not take this for the end.
			panic(http.ErrAbortHandler)
		}
	}}, nil
}

// bound keeps the reading of a caller who is bound to an identity to its sessions.
func (a *API) bound(ctx context.Context, q *services.EventQuery) error {
	own := callOf(ctx).caller.IdentityID
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

// untilStopped gives a context that also ends with EndStreams.
func (a *API) untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if a.stopped() {
		cancel()
	}
	go func() {
		select {
		case <-a.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (a *API) stopped() bool {
	select {
	case <-a.stopping:
		return true
	default:
		return false
	}
}

// EndStreams ends the streams of events, and those that begin later: followers as a body
// that is whole, without the trailer of an end; others are broken off. The server calls it
// when it stops: a follower would never end.
func (a *API) EndStreams() { a.stopOnce.Do(func() { close(a.stopping) }) }
