package wire

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// SSE writes server-sent events, and a comment where there is none for a while, so that no proxy takes a stream that
// waits for a dead connection. A client that takes nothing for too long is given up: later events are thrown away.
// Safe for concurrent use from Begin on.
type SSE struct {
	w       http.ResponseWriter
	out     *Patient
	silence time.Duration

	mu    sync.Mutex // what follows, and writing
	gone  bool
	quiet *time.Timer
}

// NewSSE makes a stream that gives its client up after a patience, at most that of all streams.
func (a *API) NewSSE(w http.ResponseWriter, patience time.Duration) *SSE {
	out := &Patient{w, nil, http.NewResponseController(w), min(patience, a.cfg.StreamPatience)}
	return &SSE{w: w, out: out, silence: a.cfg.Heartbeat}
}

// Begin sends the headers.
func (s *SSE) Begin() {
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.WriteHeader(http.StatusOK)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = time.AfterFunc(s.silence, func() { s.write(": heartbeat\n\n") })
}

// Event sends one event, whose data is JSON.
func (s *SSE) Event(name string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		return
	}
	s.write("event: " + name + "\ndata: " + string(raw) + "\n\n")
}

// End stops the heartbeats: the connection is the server's again.
func (s *SSE) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	if s.quiet != nil {
		s.quiet.Stop()
		s.out.End()
	}
}

func (s *SSE) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return
	}
	s.gone = s.out.Send([]byte(text)) != nil
	if s.quiet != nil {
		s.quiet.Reset(s.silence)
	}
}
