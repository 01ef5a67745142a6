package v1

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

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
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

// known refuses a parameter that is misspelt, and a filter that is empty: either would give the whole log to
// somebody who asked for a part of it.
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

// query reads the parameters; what they mean is held against the log by the port.
func (in *eventsIn) query() (q services.EventQuery, err error) {
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

// streams adds the call that may go on for ever. It has no deadline: it ends with its
// client, or with EndStreams.
func (a *surface) streams() {
	op := operation(
		"read-events", access.EventsRead, http.MethodGet, "/events",
		"Read the log, as CloudEvents: NDJSON, or server-sent events",
	)
	op.Metadata[metaStream], op.Metadata[metaBounds], op.Metadata[metaLong] = true, true, chatDeadline
	raw(a, op, a.events)
}

// events opens a reading, and writes it.
func (a *surface) events(w http.ResponseWriter, r *http.Request, in *eventsIn) error {
	// net/http takes the end of the time to read a request for the end of its client.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a writer of a test may have none
	q, err := a.eventQuery(r, in)
	if err != nil {
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
	out := newEventWriter(
		w, stream, strings.Contains(in.Accept, "text/event-stream"), a.wire.StreamPatience(),
		a.wire.Still(r.Header, access.EventsRead),
	)
	if r.Method == http.MethodHead {
		return nil
	}
	if err := out.run(ctx, a.wire.Heartbeat()); err != nil {
		a.brokenOff(ctx, err, q.Follow, stream)
	}
	return nil
}

// eventQuery reads what a caller asks for, and keeps a caller who is bound to an identity to its sessions.
func (a *surface) eventQuery(r *http.Request, in *eventsIn) (q services.EventQuery, err error) {
	if err := known(r.URL.Query()); err != nil {
		return q, err
	}
	if q, err = in.query(); err != nil {
		return q, err
	}
	if q.SessionID != "" {
		if err := sessionID(r.Context(), q.SessionID); err != nil {
			return q, err
		}
	}
	return q, a.bound(r.Context(), &q)
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

// bound keeps the reading of a caller who is bound to an identity to its sessions.
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
