package wire

import (
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// writeTime is how long an answer that was long in the making may take to be sent.
	writeTime = 30 * time.Second
	// pieceTime is how long a client may take for a piece of a long body.
	pieceTime = 30 * time.Second
)

// Heartbeat is how often a stream shows that it lives.
func (a *API) Heartbeat() time.Duration { return a.cfg.Heartbeat }

// StreamPatience is how long a client of a stream may take nothing.
func (a *API) StreamPatience() time.Duration { return a.cfg.StreamPatience }

// within writes, or reads, a piece of a long body in its own time. Between pieces there is
// no deadline: HTTP/2 ends a stream at one, also a stream that nobody writes to just then.
func within(set func(time.Time) error, limit time.Duration, piece func() error) error {
	_ = set(time.Now().Add(limit)) // a writer of a test may have none
	err := piece()
	if err == nil || errors.Is(err, io.EOF) {
		_ = set(time.Time{})
	}
	return err
}

// Patient reads or writes a long body, whose pieces have deadlines and whose whole has
// none.
type Patient struct {
	w io.Writer
	r io.Reader
	c *http.ResponseController
}

// NewPatient takes the deadline of an answer away; End sets another.
func NewPatient(w http.ResponseWriter, r io.Reader) *Patient {
	p := &Patient{w: w, r: r, c: http.NewResponseController(w)}
	_ = p.c.SetWriteDeadline(time.Time{}) // where there is none, none is needed
	return p
}

// End sets a deadline for what is still to be written.
func (p *Patient) End() { _ = p.c.SetWriteDeadline(time.Now().Add(pieceTime)) }

// Write writes a piece in its own time.
func (p *Patient) Write(b []byte) (n int, err error) {
	err = within(p.c.SetWriteDeadline, pieceTime, func() error { n, err = p.w.Write(b); return err })
	return n, err
}

// Send writes a piece that must arrive now.
func (p *Patient) Send(b []byte) error {
	return within(p.c.SetWriteDeadline, pieceTime, func() error {
		_, err := p.w.Write(b)
		return errors.Join(err, p.c.Flush())
	})
}

// Read reads a piece in its own time.
func (p *Patient) Read(b []byte) (n int, err error) {
	err = within(p.c.SetReadDeadline, pieceTime, func() error { n, err = p.r.Read(b); return err })
	return n, err
}
