package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Source is the ce-source of events that Turnledger itself appends.
const Source = "/turnledger"

// Header names of CloudEvents 1.0, binary mode, as they stand on the wire.
const (
	HeaderSpecVersion = "ce-specversion"
	HeaderID          = "ce-id"
	HeaderSource      = "ce-source"
	HeaderType        = "ce-type"
	HeaderTime        = "ce-time"
	HeaderContentType = "content-type"
	HeaderMsgID       = "Nats-Msg-Id"
	// HeaderTraceParent is the distributed tracing extension of CloudEvents: W3C's traceparent of the request that
	// wrote the event. It does not change what the event states.
	HeaderTraceParent = "ce-" + TraceParent
	// HeaderCall names, by a keyed digest, the call of a client that wrote the event, so that the same call again is
	// known. An event that prunes or redacts a turn names the calls that brought it. The header does not change what
	// the event states.
	HeaderCall = "Turnledger-Call"
)

// TraceParent is W3C's name of the header that names the parent of a span.
const TraceParent = "traceparent"

// Header is a message's header. Names are kept in the case they were sent in.
type Header map[string][]string

// Value returns the value of a header, whatever the case of its name, since clients in other languages may canonicalise
// names. The exact name wins, then the first name in byte order, so that every reader gets the same value.
func (h Header) Value(name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	for _, k := range slices.Sorted(maps.Keys(h)) {
		if v := h[k]; len(v) > 0 && strings.EqualFold(k, name) {
			return v[0]
		}
	}
	return ""
}

// Envelope is an event as it stands in a NATS message.
type Envelope struct {
	Subject string
	Header  Header
	Body    []byte
}

// Encode puts a fact into its envelope. now becomes ce-time, which is only information. The body is JSON without HTML
// escaping.
func Encode(f Fact, now time.Time) (Envelope, error) {
	body, err := JSON(f)
	if err != nil {
		return Envelope{}, fmt.Errorf("encode %s: %w", f.Type(), err)
	}
	id := f.EventID()
	header := make(Header, headerRoom)
	values := [...]string{
		"1.0", id, Source, f.Type(), now.UTC().Format(time.RFC3339Nano), "application/json", id,
	}
	for i, name := range [...]string{
		HeaderSpecVersion, HeaderID, HeaderSource, HeaderType, HeaderTime, HeaderContentType, HeaderMsgID,
	} {
		header[name] = values[i : i+1 : i+1] // one array for all values
	}
	return Envelope{Subject: f.Subject(), Header: header, Body: body}, nil
}

// headerRoom is the number of headers that an event may get until it is published: a map that has no room for them is
// made anew for the ninth.
const headerRoom = 12

// JSON writes a value as JSON without HTML escaping.
func JSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}

// Raw writes a value that is made of JSON and texts, which never fails.
func Raw(v any) json.RawMessage {
	raw, _ := JSON(v)
	return raw
}

// Recorded is an event read back from the log. Time is JetStream's recorded time. If the envelope states no fact, Fact
// is nil, and Problem is the reason, a word without any of the content. Different bodies have different Digests.
type Recorded struct {
	Position Position
	Time     time.Time
	Subject  string
	ID       string
	Type     string
	Source   string
	SentAt   string
	// TraceParent is the value that the publisher wrote; it may be anything.
	TraceParent string
	// Call is the value of HeaderCall; it may be anything.
	Call       string
	SessionID  string
	IdentityID string
	Digest     uint64
	Fact       Fact
	Problem    string
	Body       []byte
}

// Append returns where the event stands in its append, as its value of HeaderCall says: how many events of the append
// stand right before it, and how many right after it. Without such a value it returns false.
func (r Recorded) Append() (before, after uint64, known bool) {
	parts := strings.Split(r.Call, ".")
	if len(parts) != callParts {
		return 0, 0, false
	}
	before, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil || before >= min(r.Position.Seq, maxAppend) {
		return 0, 0, false
	}
	of, err := strconv.ParseUint(parts[2], 10, 32)
	if err != nil || of <= before || of > maxAppend {
		return 0, 0, false
	}
	return before, of - before - 1, true
}

// callParts are the parts of a value of HeaderCall: the call, the event's index in its append, how many events that
// has, and the number of the event's first message.
const callParts = 4

// maxAppend is how many events an atomic append may have.
const maxAppend = 1000

// Decode reads an envelope recorded at a position. It never fails: an envelope without a fact gets a Problem, and the
// fold reports it as an anomaly.
func Decode(env Envelope, at Position, recorded time.Time) Recorded {
	r := Recorded{
		Position: at, Time: recorded.UTC(), Subject: env.Subject, Body: env.Body,
		ID: env.Header.Value(HeaderID), Type: env.Header.Value(HeaderType),
		Source: env.Header.Value(HeaderSource), SentAt: env.Header.Value(HeaderTime),
		Digest: Digest(env.Body),
	}
	if v := env.Header[HeaderTraceParent]; len(v) > 0 {
		r.TraceParent = v[0]
	}
	if v := env.Header[HeaderCall]; len(v) > 0 {
		r.Call = v[0]
	}
	id, identity, err := ParseSubject(env.Subject)
	switch {
	case err != nil:
		r.Problem = ProblemWrongSubject
		return r
	case identity:
		r.IdentityID = id
	default:
		r.SessionID = id
	}
	if env.Header.Value(HeaderSpecVersion) != "1.0" {
		r.Problem = ProblemNoCloudEvent
		return r
	}
	fact, problem := decodeFact(r.Type, env.Body)
	switch {
	case problem != "":
		r.Problem = problem
	case fact.Subject() != env.Subject:
		r.Problem = ProblemWrongSubject
	case fact.EventID() != r.ID:
		r.Problem = ProblemWrongEventID
	default:
		r.Fact = fact
	}
	return r
}

// seed makes the digests of each process different, so that nobody can prepare two bodies with one digest.
var seed = maphash.MakeSeed()

// Digest returns a number that differs for different bodies. It holds within one process.
func Digest(body []byte) uint64 { return maphash.Bytes(seed, body) }
