package wire

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/turnledger/turnledger/services/access"
)

// writeTime bounds how long it may take to send an answer after a long call has made it.
const writeTime = 30 * time.Second

// Heartbeat returns the pause between heartbeats of a stream.
func (a *API) Heartbeat() time.Duration { return a.cfg.Heartbeat }

// Patient reads or writes a long body. Each piece has a deadline, and the whole has none. The deadline is removed
// between pieces, since HTTP/2 ends a stream at its deadline even if nothing is being written.
type Patient struct {
	w        io.Writer
	r        io.Reader
	c        *http.ResponseController
	patience time.Duration
}

// NewPatient removes the deadline of an answer; End sets another. The client may take StreamPatience for each piece.
func (a *API) NewPatient(w http.ResponseWriter, r io.Reader) *Patient {
	p := &Patient{w, r, http.NewResponseController(w), a.cfg.StreamPatience}
	_ = p.c.SetWriteDeadline(time.Time{}) // a writer without deadlines needs none
	return p
}

// End sets a deadline for what remains to be written.
func (p *Patient) End() { _ = p.c.SetWriteDeadline(time.Now().Add(p.patience)) }

// Write writes a piece within its own deadline.
func (p *Patient) Write(b []byte) (int, error) { return p.within(p.c.SetWriteDeadline, p.w.Write, b) }

// Read reads a piece within its own deadline.
func (p *Patient) Read(b []byte) (int, error) { return p.within(p.c.SetReadDeadline, p.r.Read, b) }

// Send writes a piece and flushes it.
func (p *Patient) Send(b []byte) error {
	_, err := p.within(p.c.SetWriteDeadline, func(b []byte) (int, error) {
		_, err := p.w.Write(b)
		return 0, errors.Join(err, p.c.Flush())
	}, b)
	return err
}

// within reads or writes a piece within its own deadline.
func (p *Patient) within(set func(time.Time) error, move func([]byte) (int, error), b []byte) (int, error) {
	_ = set(time.Now().Add(p.patience)) // a test's writer may have no deadlines
	n, err := move(b)
	if err == nil || errors.Is(err, io.EOF) {
		_ = set(time.Time{})
	}
	return n, err
}

// SSE writes server-sent events. During a silence it writes comments, so that no proxy takes the waiting stream for a
// dead connection. A client that reads nothing for too long is given up: its connection ends, and later events are
// thrown away. Safe for concurrent use after Begin.
type SSE struct {
	w       http.ResponseWriter
	out     *Patient
	silence time.Duration
	end     context.CancelFunc

	mu      sync.Mutex // guards the fields below, and writing
	begun   bool
	givenUp bool
	quiet   *time.Timer
}

// NewSSE makes a stream. Its client may read nothing for at most patience, or for StreamPatience if that is less.
func (a *API) NewSSE(w http.ResponseWriter, patience time.Duration) *SSE {
	out := &Patient{w, nil, http.NewResponseController(w), min(patience, a.cfg.StreamPatience)}
	return &SSE{w: w, out: out, silence: a.cfg.Heartbeat, end: func() {}}
}

// admittedEvery is the pause between two looks whether the caller of a stream would still be admitted.
const admittedEvery = time.Second

// While ends the stream once still says that its caller would no longer be admitted. It returns a context that ends
// with the stream. It must be called before Begin.
func (s *SSE) While(ctx context.Context, still func(context.Context) error) context.Context {
	ctx, s.end = context.WithCancel(ctx)
	go UntilRevoked(ctx, still, s.giveUpBegun)
	return ctx
}

// UntilRevoked calls end whenever still says that the caller of a long call would no longer be admitted. It returns
// once ctx ends.
func UntilRevoked(ctx context.Context, still func(context.Context) error, end func()) {
	for look := time.NewTicker(admittedEvery); ; {
		select {
		case <-ctx.Done():
			look.Stop()
			return
		case <-look.C:
			if access.Ended(still(ctx)) {
				end()
			}
		}
	}
}

func (s *SSE) giveUpBegun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun && !s.givenUp {
		s.giveUp()
	}
}

// giveUp ends the connection of the client, whatever its handler still does.
func (s *SSE) giveUp() {
	s.givenUp = true
	s.end()
	s.quiet.Stop()
	if conn, _, err := s.out.c.Hijack(); err == nil {
		_ = conn.Close()
		return
	}
	_ = s.out.c.SetWriteDeadline(time.Unix(1, 0)) // ends a stream of HTTP/2
}

// Begin sends the headers; only the first call counts.
func (s *SSE) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
}

func (s *SSE) begin() {
	if s.begun || s.givenUp {
		return
	}
	s.begun = true
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.WriteHeader(http.StatusOK)
	s.beats()
}

// beats lets the heart beat at the end of a silence.
func (s *SSE) beats() {
	if s.quiet == nil {
		s.quiet = time.AfterFunc(s.silence, func() { s.write(": heartbeat\n\n") })
	}
}

// BeginLater begins with the first event or heartbeat. Until then headers must not be changed, unless Refused says that
// nothing was sent.
func (s *SSE) BeginLater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beats()
}

// Refused reports whether nothing was sent; then nothing is.
func (s *SSE) Refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.givenUp = s.givenUp || !s.begun
	return !s.begun
}

// Event is a server-sent event, whose data is JSON. ID may be "".
type Event struct {
	Name string
	Data any
	ID   string
}

// Event sends one event.
func (s *SSE) Event(name string, data any) { s.Events(Event{Name: name, Data: data}) }

// Events sends events together.
func (s *SSE) Events(together ...Event) {
	text := ""
	for _, e := range together {
		raw, err := json.Marshal(e.Data)
		if err != nil {
			continue
		}
		if e.ID != "" {
			text += "id: " + e.ID + "\n"
		}
		text += "event: " + e.Name + "\ndata: " + string(raw) + "\n\n"
	}
	s.write(text)
}

// Data sends an event without a name.
func (s *SSE) Data(data any) {
	if raw, err := json.Marshal(data); err == nil {
		s.write("data: " + string(raw) + "\n\n")
	}
}

// Done sends the end that clients of chat completions wait for.
func (s *SSE) Done() { s.write("data: [DONE]\n\n") }

// End stops the heartbeats, so that the server may use the connection again.
func (s *SSE) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	if s.quiet != nil {
		s.quiet.Stop()
	}
	if s.begun && !s.givenUp {
		s.out.End()
	}
	s.givenUp = true
}

func (s *SSE) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.givenUp {
		return
	}
	s.begin()
	if s.out.Send([]byte(text)) != nil {
		s.giveUp()
		return
	}
	s.quiet.Reset(s.silence)
}
