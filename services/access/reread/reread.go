// Package reread follows what is kept in files: it has them read again and again, and
// tells once of each trouble.
package reread

import (
	"context"
	"time"
)

// What is followed. Reload reads it and tells whether it has changed; Changed is called
// where it has, Failed with an error that is another than the one before. Looked, if there
// is one, is called before each look.
type What struct {
	Reload  func() (changed bool, err error)
	Changed func()
	Failed  func(error)
	Looked  func()
}

// Run has it read every so often until ctx ends, and then returns nil.
func Run(ctx context.Context, every time.Duration, what What) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	said := ""
	for {
		if what.Looked != nil {
			what.Looked()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		changed, err := what.Reload()
		switch {
		case err != nil && err.Error() != said:
			said = err.Error()
			what.Failed(err)
		case err == nil:
			said = ""
		}
		if changed {
			what.Changed()
		}
	}
}
