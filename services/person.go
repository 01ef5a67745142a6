package services

import (
	"context"
	"io"
)

// PersonalData gives people what is kept of them.
type PersonalData interface {
	// Archive writes a zip with the sessions of an identity, the attempts to link them to others, and the receipts of
	// its erasures (docs/contract.md#a-persons-data). It writes nothing before it has read all, and leaves out what was
	// withdrawn by then. Its errors are those of an EventReader, a SessionReader and a ReceiptReader.
	Archive(ctx context.Context, identityID string, w io.Writer) error
}
