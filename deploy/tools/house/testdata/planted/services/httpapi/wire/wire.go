// Package wire knows a noun, which no surface's carrier may.
package wire

import "github.com/turnledger/turnledger/services"

// Turn is a noun of the services.
type Turn = services.Turn
