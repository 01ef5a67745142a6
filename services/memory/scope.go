package memory

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

// Scope names what a memory is about: an identity, or an anonymous session. Storing and
// searching both ask here, so that they can't differ. Ids that a memory service would
// not take in a name (Supermemory: 100 of a-z, A-Z, 0-9, _, : and -) are hashed.
func Scope(identityID, sessionID string) string {
	if identityID != "" {
		return "user:" + scopeName(identityID)
	}
	return "thread:" + scopeName(sessionID)
}

// plainName leaves out what looks like a hash, so that no id is taken for another's.
var (
	plainName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,80}$`)
	hashName  = regexp.MustCompile(`^sha256-[0-9a-f]{64}$`)
)

func scopeName(id string) string {
	if plainName.MatchString(id) && !hashName.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256-" + hex.EncodeToString(sum[:])
}
