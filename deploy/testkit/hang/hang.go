// Package hang waits in a test for what is bound to happen.
package hang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Limit is so long that only what hangs meets it: a busy machine makes a test slow, and never fail.
const Limit = 5 * time.Minute

// Until asks whether something holds until it does, in the caller's goroutine, where a check may fail the test. It
// rests four times as long as the last look took, and the longer the longer it waits, so that looks leave the machine
// to what is waited for.
func Until(t testing.TB, holds func() bool, message ...any) {
	t.Helper()
	for begun := time.Now(); ; {
		asked := time.Now()
		if holds() {
			return
		}
		if time.Since(begun) > Limit {
			require.FailNow(t, "it never came to hold", message...)
		}
		<-time.After(min(max(4*time.Since(asked), time.Since(begun)/16, 2*time.Millisecond), time.Second/4))
	}
}
