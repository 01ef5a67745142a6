package align

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// Prompt returns the digest of a prompt under a key. It is the same for messages whose JSON means the same. Without a
// key it is "": what a prompt says could be guessed from a plain hash.
func Prompt(key []byte, system string, list []json.RawMessage) string {
	parts := make([][]byte, 0, len(list)+1)
	parts = append(parts, []byte(system))
	for _, m := range list {
		canonical := jsontext.Value(append([]byte(nil), m...))
		if canonical.Canonicalize() != nil { // half a surrogate pair: as it came
			canonical = jsontext.Value(m)
		}
		parts = append(parts, canonical)
	}
	return Seal(key, parts)
}

// keyed is how many bytes of a digest name its key.
const keyed = 3

// Seal returns the digest of some parts under a key, which begins with what names the key; "" without one.
func Seal(key []byte, parts [][]byte) string {
	if len(key) == 0 {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		mac.Write(size[:])
		mac.Write(p)
	}
	return base64.RawURLEncoding.EncodeToString(append(nameOf(key), mac.Sum(nil)[:18]...))
}

// nameOf returns what names a key in digests.
func nameOf(key []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("the name of the key"))
	return mac.Sum(nil)[:keyed]
}

// Under reports whether a digest was made under a key.
func Under(key []byte, digest string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(digest)
	return err == nil && len(key) > 0 && len(raw) > keyed && hmac.Equal(raw[:keyed], nameOf(key))
}
