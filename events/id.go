package events

import (
	"crypto/sha1" //nolint:gosec // as UUIDv5 wants it
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// namespace is the UUID namespace of all computed ids. It never changes.
var namespace = uuid.MustParse("6f1d1d0e-8a55-5c0e-9d1b-0c7a3d2f4b10")

// TurnID returns the id of the turn that a request opens in a session: UUIDv5 over session id, 0x00, request id. So a
// retry computes the same id without a look-up.
func TurnID(sessionID, requestID string) uuid.UUID { return pairID(sessionID, requestID) }

func pairID(a, b string) uuid.UUID {
	name := append(make([]byte, 0, 128), namespace[:]...) // on the stack, if the ids are not long
	name = append(append(append(name, a...), 0), b...)
	sum := sha1.Sum(name) //nolint:gosec // as UUIDv5 wants it
	id := uuid.UUID(sum[:16])
	id[6], id[8] = id[6]&0x0f|5<<4, id[8]&0x3f|0x80 // version 5, variant of RFC 9562
	return id
}

// pairEventID returns the id of an event that names no turn, made of two texts and the verb of its type.
func pairEventID(a, b, verb string) string { return pairID(a, b).String() + "." + verb }

// ValidID returns ErrID if a text can't be the id of a session, a request or an identity.
func ValidID(id string) error {
	if id == "" || len(id) > 256 || !utf8.ValidString(id) || id == "." || id == ".." ||
		strings.ContainsFunc(id, unicode.IsControl) {
		return ErrID
	}
	return nil
}

// ValidExtensionID returns ErrID if a text can't be the id of an extension. It ends the id of its event, which is a
// header, and headers lose spaces at their ends.
func ValidExtensionID(id string) error {
	if strings.HasSuffix(id, " ") {
		return ErrID
	}
	return ValidID(id)
}
