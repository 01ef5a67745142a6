package backup

import (
	"errors"
	"io"
)

// Send packs the backup, and calls to with a reader of the packed bytes. It calls told with the number of bytes so far.
// It fails with ErrDamaged if the backup has changed since it was checked, and otherwise with the error of to.
func (w *CheckedBackup) Send(erasures []Erasure, progress func(done int64), to func(io.Reader) error) error {
	from, in := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := w.Pack(io.MultiWriter(in, &counting{progress: progress}), erasures)
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
