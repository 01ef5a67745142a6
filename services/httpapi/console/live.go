package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// Bounds of a stream of news: how long a wait for events lasts until the caller's key is looked at again, how long a
// client may read nothing, and the time that the stream's place is counted with.
const (
	lookAgain    = time.Second
	livePatience = 5 * time.Second
	liveTime     = 5 * time.Minute
)

// live streams news for a page: an event "news" for what the log has recorded, with a position and no text. The page
// then fetches itself again. An event "ended" says that the caller may not read any more.
func (s *surface) live(w http.ResponseWriter, r *http.Request) error {
	q, err := liveQuery(r)
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a test's writer may have no deadlines
	policy(w.Header())
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not buffer the stream
	stream, err := s.cfg.Events.OpenEvents(r.Context(), q)
	if err != nil {
		return err
	}
	defer stream.Close()
	ctx, end := s.api.UntilStopped(r.Context())
	defer end()
	out, still := s.api.NewSSE(w, livePatience), s.api.Still(r, access.EventsRead)
	defer out.End()
	out.Begin()
	out.Event("open", true)
	for {
		wait, cancel := context.WithTimeout(ctx, lookAgain)
		batch, err := stream.Next(wait)
		cancel()
		if still(ctx) != nil {
			out.Event("ended", true)
			return nil
		}
		switch {
		case len(batch) > 0:
			out.Event("news", batch[len(batch)-1].Position)
		case ctx.Err() != nil, errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, context.DeadlineExceeded):
		default:
			return err
		}
	}
}

// liveQuery returns what a stream of news is about: what is recorded after the position that the page has shown.
func liveQuery(r *http.Request) (services.EventQuery, error) {
	query := r.URL.Query()
	shown := logView{
		Type: query.Get("type"), Session: query.Get("session_id"), Identity: query.Get("identity_id"),
		From: query.Get("after"), Since: query.Get("since"),
	}
	if id := r.PathValue("session_id"); id != "" {
		if events.ValidID(id) != nil {
			return services.EventQuery{}, errNothing
		}
		shown = logView{Session: id, From: query.Get("after")}
	}
	q, err := shown.query()
	q.Follow = true
	if err == nil && shown.From == "" {
		err = invalid("after", "must be the position that the page has shown")
	}
	return q, err
}

// liveHref returns the address of the news after a position.
func liveHref(page, after string, filter url.Values) string {
	q := url.Values{"after": {after}}
	for name, values := range filter {
		q[name] = values
	}
	return page + "/live?" + q.Encode()
}
