// Package leaks finds goroutines that a package's tests leave behind.
package leaks

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end after the tests. NATS servers in this process stop some of theirs a
// while after they were told to, later still on a busy machine, and goleak itself waits for less than half a second.
const patience = 10 * time.Second

// VerifyTestMain runs a package's tests and ends the process, as goleak.VerifyTestMain does, but waits longer for
// goroutines that are about to end.
//
//	func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }
func VerifyTestMain(m goleak.TestingM, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := find(patience, options...); err != nil {
			_, _ = fmt.Fprintf(os.Stderr, "the tests pass, but: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// find returns an error if goroutines are left after so long.
func find(patience time.Duration, options ...goleak.Option) (err error) {
	for late := time.Now().Add(patience); ; {
		if err = goleak.Find(options...); err == nil || time.Now().After(late) {
			return err
		}
	}
}
