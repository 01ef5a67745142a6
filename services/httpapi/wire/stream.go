package wire

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// writeTime is how long an answer that was long in the making may take to be sent.
const writeTime = 30 * time.Second

// Heartbeat is how often a stream shows that it lives.
func (a *API) Heartbeat() time.Duration { return a.cfg.Heartbeat }

// Patient reads or writes a long body. Each piece has a deadline, and the whole has none. Between pieces there is
// no deadline: HTTP/2 ends a stream at one, also a stream that nobody writes to just then.
type Patient struct {
	w        io.Writer
	r        io.Reader
	c        *http.ResponseController
	patience time.Duration
}

// NewPatient takes the deadline of an answer away; End sets another. The client may take as long for a piece as
// for one of any stream.
func (a *API) NewPatient(w http.ResponseWriter, r io.Reader) *Patient {
	p := &Patient{w, r, http.NewResponseController(w), a.cfg.StreamPatience}
	_ = p.c.SetWriteDeadline(time.Time{}) // where there is none, none is needed
	return p
}

// End sets a deadline for what is still to be written.
func (p *Patient) End() { _ = p.c.SetWriteDeadline(time.Now().Add(p.patience)) }

// Write writes a piece in its own time.
func (p *Patient) Write(b []byte) (int, error) { return p.within(p.c.SetWriteDeadline, p.w.Write, b) }

// Read reads a piece in its own time.
func (p *Patient) Read(b []byte) (int, error) { return p.within(p.c.SetReadDeadline, p.r.Read, b) }

// Send writes a piece that must arrive now.
func (p *Patient) Send(b []byte) error {
	_, err := p.within(p.c.SetWriteDeadline, func(b []byte) (int, error) {
		_, err := p.w.Write(b)
		return 0, errors.Join(err, p.c.Flush())
	}, b)
	return err
}

// within moves a piece in its own time.
func (p *Patient) within(set func(time.Time) error, move func([]byte) (int, error), b []byte) (int, error) {
	_ = set(time.Now().Add(p.patience)) // a writer of a test may have none
	n, err := move(b)
	if err == nil || errors.Is(err, io.EOF) {
		_ = set(time.Time{})
	}
	return n, err
}
