package wire

import (
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

// SSE writes server-sent events, and a comment where there is none for a while, so that nobody on the way takes a
// stream that waits for a dead connection. A client that takes nothing for too long is given up: what comes then
// is thrown away. Safe for concurrent use from Begin on.
type SSE struct {
	w        http.ResponseWriter
	out      *http.ResponseController
	patience time.Duration
	silence  time.Duration

	mu    sync.Mutex // what follows, and writing
	gone  bool
	quiet *time.Timer
}

// NewSSE makes a stream that gives its client up after a patience.
func (a *API) NewSSE(w http.ResponseWriter, patience time.Duration) *SSE {
	return &SSE{w: w, out: http.NewResponseController(w), patience: patience, silence: a.cfg.Heartbeat}
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
		_ = s.out.SetWriteDeadline(time.Now().Add(s.patience)) // for its end
	}
}

func (s *SSE) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return
	}
	s.gone = within(s.out.SetWriteDeadline, s.patience, func() error {
		_, err := s.w.Write([]byte(text))
		return errors.Join(err, s.out.Flush())
	}) != nil
	if s.quiet != nil {
		s.quiet.Reset(s.silence)
	}
}
