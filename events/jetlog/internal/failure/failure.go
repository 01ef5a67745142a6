// Package failure holds the errors that jetlog and its inner packages share. Other packages use their names in jetlog.
package failure

import (
	"errors"
	"fmt"
)

var (
	// ErrUnavailable is jetlog.ErrUnavailable.
	ErrUnavailable = errors.New("the log is unavailable")
	// ErrNoWrites is jetlog.ErrNoWrites.
	ErrNoWrites = fmt.Errorf("%w: it takes no writes, since its disk is full or failing", ErrUnavailable)
	// ErrStream is jetlog.ErrStream.
	ErrStream = errors.New("the log's streams do not fit the configuration")
	// ErrLayout is jetlog.ErrLayout.
	ErrLayout = errors.New("the stream's files are not where the durability gate expects them")
)

// Unavailable is jetlog.Unavailable.
func Unavailable(doing string, err error) error {
	if !errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if doing == "" {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}
