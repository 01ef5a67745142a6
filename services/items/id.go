package items

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
)

// Address is where an item stands in the log: in the half of a turn whose first event is at Position, in which message
// of the half, and as which item of that message. What extends the half later moves no item.
type Address struct {
	Position     events.Position
	Answer       bool
	Message, Sub int
}

// SessionOf returns the digest of its session's id (events.SessionDigest) that an id has which Locate locates.
func SessionOf(id string) string {
	_, rest, _ := strings.Cut(id, "_")
	return rest[:sessionWidth]
}

// The widths of an address's numbers in hex. An item's id has the look of OpenAI's: a prefix and 48 hex digits.
const (
	sessionWidth = 16 // of events.SessionDigest
	subWidth     = 2
	seqWidth     = 10
	partWidth    = 2
	messageWidth = 4
	checkWidth   = 14

	// answerBit of the first number marks an answer; the rest of it is Sub.
	answerBit = 0x80
)

// Minter makes the ids of items and responses. Its key keeps them from being guessed. The same address always has the
// same id, so nothing stores ids that nobody gave.
type Minter struct{ Key []byte }

// Item returns the id of an item of a session.
func (m Minter) Item(kind, sessionID string, at Address) string {
	sub := at.Sub &^ answerBit
	if at.Answer {
		sub |= answerBit
	}
	place := fmt.Sprintf("%02x%010x%02x%04x", sub&0xff, at.Position.Seq, at.Position.Partition, at.Message&0xffff)
	return Prefix(kind) + events.SessionDigest(sessionID) + place + m.cut(sessionID, place)
}

func (m Minter) cut(sessionID, place string) string {
	mac := hmac.New(sha256.New, m.Key)
	_, _ = mac.Write([]byte("item\x00" + sessionID + "\x00" + place)) // never fails
	return hex.EncodeToString(mac.Sum(nil))[:checkWidth]
}

var itemID = regexp.MustCompile(`^[a-z]{2,5}_[0-9a-f]{48}$`)

// Locate returns the address in an id that looks like one of ours. The id may still be another's: compare it with the
// item's own at that place.
func Locate(id string) (Address, bool) {
	if !itemID.MatchString(id) {
		return Address{}, false
	}
	rest := id[strings.LastIndexByte(id, '_')+1+sessionWidth:]
	take := func(width int) int {
		n, _ := strconv.ParseInt(rest[:width], 16, 64) // hex digits, by itemID
		rest = rest[width:]
		return int(n)
	}
	var a Address
	sub := take(subWidth)
	a.Answer, a.Sub = sub&answerBit != 0, sub&^answerBit
	a.Position.Seq = uint64(take(seqWidth)) //nolint:gosec // 40 bits
	a.Position.Partition = take(partWidth)
	a.Message = take(messageWidth)
	return a, true
}

// Made reports whether Minter made an id of an item of a session.
func (m Minter) Made(id, sessionID string) bool {
	at, looks := Locate(id)
	kind, _, _ := strings.Cut(id, "_")
	return looks && hmac.Equal([]byte(m.Item("", sessionID, at)),
		[]byte(prefixOfOthers+strings.TrimPrefix(id, kind+"_")))
}

// ConversationPrefix begins the ids of conversations that are made here. A conversation may have any other id of a
// session.
const ConversationPrefix = "conv_"

// ConversationID returns an id of a conversation, with the look of OpenAI's, that is made of a digest.
func ConversationID(digest [sha256.Size]byte) string {
	return ConversationPrefix + hex.EncodeToString(digest[:24])
}

// NewConversationID draws an id of a conversation.
func NewConversationID() string {
	var drawn [sha256.Size]byte
	_, _ = rand.Read(drawn[:]) // never fails
	return ConversationID(drawn)
}

// Step is where a response stands: the turn, and the event that brought its input. Attempt names a further attempt at
// it; "" is the first.
type Step struct {
	Position events.Position
	TurnID   uuid.UUID
	Attempt  string
}

// attemptWidth is the width of an attempt's name: the time at which it began, in milliseconds.
const attemptWidth = 9

// NewAttempt returns the name of an attempt that begins at a time.
func NewAttempt(at time.Time) string {
	return fmt.Sprintf("%0*x", attemptWidth, at.UnixMilli()&(1<<(4*attemptWidth)-1))
}

// SinceAttempt returns how long before a time the attempt of a name began; 0 if it did later.
func SinceAttempt(name string, now time.Time) time.Duration {
	began, _ := strconv.ParseInt(name, 16, 64)
	const most = 1 << (4 * attemptWidth)
	if ago := (now.UnixMilli() - began) & (most - 1); ago < most/2 {
		return time.Duration(ago) * time.Millisecond
	}
	return 0
}

const (
	responsePrefix  = "resp_"
	responseVersion = "02"
)

var responseID = regexp.MustCompile(`^resp_[0-9a-f]{46}02([0-9a-f]{9})?$`)

// ResponseID returns the id of a response.
func ResponseID(s Step) string {
	return fmt.Sprintf("%s%02x%012x%s%s%s", responsePrefix, s.Position.Partition, s.Position.Seq,
		hex.EncodeToString(s.TurnID[:]), responseVersion, s.Attempt)
}

// ParseResponseID returns where the response of an id stands, if the id looks like one of ours.
func ParseResponseID(id string) (Step, bool) {
	if !responseID.MatchString(id) {
		return Step{}, false
	}
	const first = len(responsePrefix) + 2*23 + len(responseVersion)
	raw, err := hex.DecodeString(id[len(responsePrefix):first])
	if err != nil {
		return Step{}, false
	}
	s := Step{
		Position: events.Position{Partition: int(raw[0])}, TurnID: uuid.UUID(raw[7:23]), Attempt: id[first:],
	}
	for _, b := range raw[1:7] {
		s.Position.Seq = s.Position.Seq<<8 | uint64(b)
	}
	return s, true
}

// prefixes are those of the ids of items, by type. An item of another type has the prefix of others.
var prefixes = map[string]string{
	"message": "msg_", "function_call": "fc_", "function_call_output": "fco_", "reasoning": "rs_",
	"file_search_call": "fs_", "web_search_call": "ws_", "code_interpreter_call": "ci_", "image_generation_call": "ig_",
	"mcp_call": "mcp_", "mcp_list_tools": "mcpl_", "mcp_approval_request": "mcpr_",
	"custom_tool_call": "ctc_", "custom_tool_call_output": "ctco_", "computer_call": "cu_",
}

const prefixOfOthers = "item_"

// maxID is the longest id that a client may give an item.
const maxID = 64

// Prefix returns what the ids of items of a type begin with.
func Prefix(kind string) string {
	if p, known := prefixes[kind]; known {
		return p
	}
	return prefixOfOthers
}

// KeepsID reports whether an item may have the id that its client gave it: one that is not too long, and begins as ids
// of its type do. OpenAI tests the first letters only.
func KeepsID(i message.Item) bool {
	id := i.ID()
	if id == "" || len(id) > maxID || strings.ContainsFunc(id, notInID) {
		return false
	}
	p, known := prefixes[i.Type()]
	return !known || strings.HasPrefix(id, strings.TrimSuffix(p, "_"))
}

// Unnamed returns an item without its id, so that it gets one of ours. An endpoint that gets the item as it came knows
// it by the id that it came with.
func Unnamed(i message.Item) message.Item {
	if _, ours := Locate(i.ID()); !ours && i.ID() != "" && i.IsSentWhole() {
		i = i.KnownAs("id", i.ID())
	}
	return i.WithoutID()
}

// Known returns an item with what its endpoint has in the place of ids of ours: its own, and that of the request for
// approval which it speaks of. find returns the item of an id, or nil.
func Known(i message.Item, find func(id string) (message.Item, error)) (message.Item, error) {
	theirs := func(id string) (string, error) {
		if _, ours := Locate(id); !ours {
			return "", nil
		}
		there, err := find(id)
		return there.KnownID(), err
	}
	if i.IsSentWhole() && i.KnownID() == "" {
		id, err := theirs(i.ID())
		if err != nil {
			return nil, err
		}
		if id != "" {
			i = i.KnownAs("id", id)
		}
	}
	id, err := theirs(i.Approval())
	if err == nil && id != "" {
		i = i.Approving(i.Approval(), id)
	}
	return i, err
}

// notInID reports whether an id can't have a character. An id stands in a path.
func notInID(r rune) bool {
	return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}
