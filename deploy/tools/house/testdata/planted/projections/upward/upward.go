// Package upward is a view that imports what lies above it.
package upward

import "github.com/turnledger/turnledger/services"

// Turn is a noun of the services.
type Turn = services.Turn
