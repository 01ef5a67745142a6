package events

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Buckets is the fixed number of logical buckets. Each stream owns a contiguous range of them.
const Buckets = 256

const (
	sessionRoot  = "turns"
	identityRoot = "identities"
)

// IdentityRoot is the prefix of the subjects for events of identities.
const IdentityRoot = identityRoot + "."

// Token returns the subject token of an id: the id itself if it matches
// [A-Za-z0-9_-]{1,128}, else "~" and its unpadded base64url. It is injective.
func Token(id string) string {
	if plain(id) {
		return id
	}
	return "~" + base64.RawURLEncoding.EncodeToString([]byte(id))
}

// ParseToken returns the id whose token is t. It fails with ErrSubject if Token never returns t.
func ParseToken(t string) (string, error) {
	if plain(t) {
		return t, nil
	}
	id, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimPrefix(t, "~"))
	if err != nil || Token(string(id)) != t {
		return "", fmt.Errorf("%w: bad token", ErrSubject)
	}
	return string(id), nil
}

func plain(id string) bool {
	if len(id) == 0 || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// Bucket returns FNV-1a-32 of the token modulo Buckets, the same as NATS's own partition(256, token).
func Bucket(token string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(token))
	return int(h.Sum32() % Buckets)
}

// SessionSubject returns the one subject of a session's events.
func SessionSubject(sessionID string) string { return subject(sessionRoot, sessionID) }

// IdentitySubject returns the subject of an identity's own events.
func IdentitySubject(identityID string) string { return subject(identityRoot, identityID) }

func subject(root, id string) string {
	t := Token(id)
	return root + "." + strconv.Itoa(Bucket(t)) + "." + t
}

// ParseSubject returns the id in a subject, and whether it is an identity's. The error is ErrSubject if the root or the
// bucket is wrong, or if Token never returns such a token.
func ParseSubject(s string) (id string, identity bool, err error) {
	root, rest, _ := strings.Cut(s, ".")
	bucket, token, ok := strings.Cut(rest, ".")
	if !ok || (root != sessionRoot && root != identityRoot) {
		return "", false, fmt.Errorf("%w: foreign", ErrSubject)
	}
	if id, err = ParseToken(token); err != nil {
		return "", false, err
	}
	if bucket != strconv.Itoa(Bucket(token)) {
		return "", false, fmt.Errorf("%w: wrong bucket", ErrSubject)
	}
	return id, root == identityRoot, nil
}

// Partition returns which of the given number of partitions owns the bucket of an id.
func Partition(id string, partitions int) int {
	return Bucket(Token(id)) * partitions / Buckets
}

// StreamName returns the name of a partition's stream.
func StreamName(partition int) string { return "TURNS-" + strconv.Itoa(partition) }

// StreamSubjects returns the subjects that the stream of a partition captures.
func StreamSubjects(partition, partitions int) []string {
	if partitions == 1 {
		return []string{sessionRoot + ".*.*", identityRoot + ".*.*"}
	}
	var out []string
	for _, root := range []string{sessionRoot, identityRoot} {
		for b := partition * Buckets / partitions; b < (partition+1)*Buckets/partitions; b++ {
			out = append(out, root+"."+strconv.Itoa(b)+".*")
		}
	}
	return out
}
