// Package hang says how long a test waits for what is bound to happen.
package hang

import "time"

// Limit is so long that only what hangs meets it: a busy machine makes a test slow, and never fail.
const Limit = 5 * time.Minute
