package events

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a description. Lengths are in characters, which are Unicode code points; U+0000 is none of them.
const (
	MaxTitle            = 200
	MaxMetadataKeys     = 16
	MaxMetadataKey      = 64
	MaxMetadataValue    = 512
	maxRequestsOfBefore = 256
)

// SessionKind says what a session is for. A silence is no boundary in a session that has a kind.
type SessionKind string

// The kinds. A response session is made by responses alone (docs/contract.md).
const (
	KindConversation SessionKind = "conversation"
	KindResponse     SessionKind = "response"
)

// SessionDescribed says: the session has this title and this metadata, and no others. It replaces every earlier
// description, which then leaves the log, so it also carries what the fold needs of those: Earlier has the hashes of
// their requests (RequestHash), oldest first, and CreatedAt is when the session began. After is the session's last
// position when the description was decided: a description that was decided before the one that stands has no effect.
// Kind, once set, is the same in every later description. CurrentBranch is the branch of the session that its chat goes
// on in; left out where that is the session itself.
type SessionDescribed struct {
	SessionID string            `json:"session_id"`
	RequestID string            `json:"request_id"`
	After     Position          `json:"after"`
	Title     string            `json:"title,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	CreatedAt *time.Time        `json:"created_at,omitempty"`
	Earlier   []string          `json:"earlier,omitempty"`
	Kind      SessionKind       `json:"kind,omitempty"`

	CurrentBranch string `json:"current_branch,omitempty"`
}

// Type implements Fact.
func (f *SessionDescribed) Type() string { return TypeSessionDescribed }

// EventID implements Fact.
func (f *SessionDescribed) EventID() string {
	return pairEventID(f.SessionID, f.RequestID, "described")
}

// Subject implements Fact.
func (f *SessionDescribed) Subject() string { return SessionSubject(f.SessionID) }

func (f *SessionDescribed) names() Names          { return Names{} }
func (f *SessionDescribed) texts() Texts          { return Texts{} }
func (f *SessionDescribed) withdraws() Withdrawal { return WithdrawsDescription }
func (f *SessionDescribed) check([]byte) Problem {
	return cmp.Or(badID(f.SessionID), badID(f.RequestID), problemIf(f.malformed(), ProblemDescription))
}

func (f *SessionDescribed) malformed() bool {
	if (f.CreatedAt == nil) != (len(f.Earlier) == 0) || len(f.Earlier) > maxRequestsOfBefore ||
		utf8.RuneCountInString(f.Title) > MaxTitle || strings.ContainsRune(f.Title, 0) ||
		len(f.Metadata) > MaxMetadataKeys || !f.Kind.known() || f.CurrentBranch != "" && badID(f.CurrentBranch) != "" {
		return true
	}
	for _, h := range f.Earlier {
		if !requestHash.MatchString(h) {
			return true
		}
	}
	for k, v := range f.Metadata {
		if n := utf8.RuneCountInString(k); n == 0 || n > MaxMetadataKey ||
			utf8.RuneCountInString(v) > MaxMetadataValue || strings.ContainsRune(k+v, 0) {
			return true
		}
	}
	return false
}

func (k SessionKind) known() bool { return k == "" || k == KindConversation || k == KindResponse }

var requestHash = regexp.MustCompile(`^[0-9a-f]{16}$`)

// RequestHash is the form in which a description names the request of an earlier one: the first 8 bytes of the SHA-256
// of its id, in hexadecimal.
func RequestHash(requestID string) string {
	sum := sha256.Sum256([]byte(requestID))
	return hex.EncodeToString(sum[:8])
}

// EarlierRequests returns what the next description carries of the requests before it: the hashes of those before and
// of the last one. Only the newest 256 are kept.
func EarlierRequests(before []string, last string) []string {
	all := append(append(make([]string, 0, len(before)+1), before...), last)
	return all[max(0, len(all)-maxRequestsOfBefore):]
}

// KeepsAllRequests reports whether a list of earlier requests is short enough to hold every one of them.
func KeepsAllRequests(earlier []string) bool { return len(earlier) < maxRequestsOfBefore }
