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
// rests as long as the last look took, so a look that costs much leaves the machine to what is waited for.
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
		<-time.After(max(time.Since(asked), 2*time.Millisecond))
	}
}
