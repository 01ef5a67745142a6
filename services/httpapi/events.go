package httpapi

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/turnledger/turnledger/events"
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
	Accept      string   `header:"Accept" doc:"text/event-stream for server-sent events, else NDJSON"`
}

// query reads the parameters; what they mean is held against the log by the port.
func (in *eventsIn) query() (q EventQuery, err error) {
	q = EventQuery{SessionID: in.SessionID, IdentityID: in.IdentityID}
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
		return nil, invalid(field, "must be a position such as 0:42, or several of different partitions with commas between")
	}
	return at, nil
}

// eventsOut writes itself.
type eventsOut struct{ Body func(huma.Context) }

// streams adds the call that may go on for ever. It has no deadline: it ends with its
// client, or with EndStreams.
func (a *API) streams(api huma.API) {
	op := operation("read-events", EventsRead, http.MethodGet, "/events", "Read the log, as CloudEvents: NDJSON, or server-sent events")
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
	ctx, end := a.untilStopped(ctx)
	stream, err := a.cfg.Events.OpenEvents(ctx, q)
	if err != nil {
		end()
		return nil, err
	}
	return &eventsOut{func(hctx huma.Context) {
		defer end()
		defer stream.Close()
		r, w := humago.Unwrap(hctx)
		out := newEventWriter(w, stream, strings.Contains(in.Accept, "text/event-stream"), a.cfg.StreamPatience)
		if r.Method == http.MethodHead {
			return
		}
		if err := out.run(ctx, a.cfg.Heartbeat); err != nil {
			switch at := stream.Position().String(); {
			case errors.Is(err, os.ErrDeadlineExceeded):
				a.cfg.Logger.Info("a reader of events takes nothing and is given up", "position", at)
			case ctx.Err() == nil:
				a.cfg.Logger.Warn("a stream of events broke off", "err", tellable(err), "position", at)
			}
			c.err = err
			// The client must not take this for the end.
			panic(http.ErrAbortHandler)
		}
	}}, nil
}

// bound keeps the reading of a caller who is bound to an identity to its sessions.
func (a *API) bound(ctx context.Context, q *EventQuery) error {
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
	go func() {
		select {
		case <-a.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// EndStreams breaks off the streams of events, and those that begin later. The server
// calls it when it stops: a follower would never end.
func (a *API) EndStreams() { a.stopOnce.Do(func() { close(a.stopping) }) }
