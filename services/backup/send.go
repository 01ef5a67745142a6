package backup

import (
	"errors"
	"io"
)

// Send packs the backup, and calls to with a reader of the packed bytes and told with their number so far. It fails
// with ErrDamaged if the backup has changed since it was checked, and otherwise with the error of to.
func (w *Whole) Send(erasures []Erasure, told func(done int64), to func(io.Reader) error) error {
	from, in := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := w.Pack(&tally{w: in, told: told}, erasures)
		_ = in.CloseWithError(err)
		packed <- err
	}()
	err := to(from)
	_ = from.CloseWithError(errors.New("the server has answered"))
	if failed := <-packed; errors.Is(failed, ErrDamaged) {
		return failed
	}
	return err
}

// tally counts what is written.
type tally struct {
	w    io.Writer
	n    int64
	told func(int64)
}

// Write implements io.Writer.
func (t *tally) Write(b []byte) (int, error) {
	n, err := t.w.Write(b)
	t.n += int64(n)
	t.told(t.n)
	return n, err
}
