package recent

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// A record of a turn is: version, state, turn id, the question half, and for a finalized turn the answer half. Behind
// each half stand the number of its messages, and then its extensions. Nothing is escaped, so that a script can join
// the parts, and texts stay byte for byte.
const (
	version   = 3
	pending   = 'p'
	finalized = 'f'
	// extension begins an extension. No answer half begins so.
	extension = 'x'
)

const (
	flagTranslate = 1 << iota
	flagFallback
	flagReplaces
	flagAsked
)

// Record returns the record of a turn, whole or not.
func Record(t *session.Turn) []byte {
	base, parts := t.Parts()
	state := byte(pending)
	if t.Status == session.Finalized {
		state = finalized
	}
	b := make([]byte, 0, sizeOfNumbers+sizeOfQuestion(t)+sizeOfAnswer(t))
	b = appendCount(appendStart(b, state, &base), t)
	if state == finalized {
		b = AppendAnswer(b, &base)
	}
	for _, p := range parts {
		b = appendPart(b, p, t.Asked)
	}
	return b
}

// sizeOfNumbers is about what a record takes beside its texts.
const sizeOfNumbers = 96

func sizeOfQuestion(t *session.Turn) int {
	q := t.Question
	return len(t.RequestID) + len(q.PipelineName) + len(q.Consultant) + len(q.Repository) + len(q.QuestionNeutral) +
		len(q.QuestionTranslated) + len(q.QuestionMessages) + len(q.Metadata)
}

func sizeOfAnswer(t *session.Turn) int {
	a := t.Answer
	if a == nil {
		return 0
	}
	return len(a.AnswerNeutral) + len(a.AnswerTranslated) + len(a.AnswerMessages) + len(t.AnswerMetadata)
}

func appendCount(b []byte, t *session.Turn) []byte {
	return binary.AppendUvarint(b, uint64(t.LastMessages))
}

// AppendExtension appends the extension that an event has just added to a turn, as far as a view may show it.
func AppendExtension(b []byte, rules session.Rules, t *session.Turn, texts events.Texts) []byte {
	return appendPart(b, rules.PartOf(t, texts), t.Asked)
}

// appendPart appends an extension, and whether a model is asked now.
func appendPart(b []byte, p session.Part, asked bool) []byte {
	flags := byte(0)
	if asked {
		flags |= flagAsked
	}
	b = appendText(append(b, extension, flags), string(p.Half))
	b = appendText(binary.AppendUvarint(b, p.Seq), p.ID)
	b = appendText(binary.AppendUvarint(b, uint64(p.Messages)), p.Texts.Messages) //nolint:gosec // not negative
	return appendText(appendText(b, p.Texts.QuestionNeutral+p.Texts.AnswerNeutral), p.Metadata)
}

// parts reads the extensions that come next.
func (r *reader) parts(t *session.Turn) {
	for strings.HasPrefix(r.unread, string(extension)) {
		r.byte()
		asked := r.byte()&flagAsked != 0
		t.Asked = t.Asked || asked
		p := session.Part{Extended: session.Extended{
			Half: events.Half(r.text()), Seq: r.uint(), ID: r.text(),
			Messages: int(r.uint()), //nolint:gosec // as written
		}}
		p.Texts = events.Extension{Half: p.Half, Messages: r.raw()}
		if p.Half == events.HalfQuestion {
			p.Texts.QuestionNeutral = r.text()
		} else {
			p.Texts.AnswerNeutral = r.text()
		}
		p.Metadata = r.raw()
		t.Add(p)
	}
}

func appendStart(b []byte, state byte, t *session.Turn) []byte {
	b = append(b, version, state)
	b = append(b, t.ID[:]...)
	q, flags := t.Question, byte(0)
	if t.TranslateChat {
		flags |= flagTranslate
	}
	if t.Corrects() {
		flags |= flagReplaces
	}
	if t.Asked {
		flags |= flagAsked
	}
	b = append(b, flags)
	if t.Corrects() {
		b = append(b, t.Replaces[:]...)
	}
	b = binary.AppendUvarint(b, t.Place)
	b = binary.AppendUvarint(b, t.Started)
	b = binary.AppendVarint(b, int64(t.Version))
	b = appendTime(b, t.CreatedAt)
	for _, s := range []string{t.RequestID, q.PipelineName, q.Consultant, q.Repository, q.QuestionNeutral,
		q.QuestionTranslated} {
		b = appendText(b, s)
	}
	return appendText(appendText(b, q.QuestionMessages), q.Metadata)
}

// AppendAnswer appends the answer half of a record.
func AppendAnswer(b []byte, t *session.Turn) []byte { return appendCount(appendAnswer(b, t), t) }

func appendAnswer(b []byte, t *session.Turn) []byte {
	a, flags := t.Answer, byte(0)
	if a.AnswerTranslatedIsFallback {
		flags |= flagFallback
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, t.Final)
	b = appendTime(b, t.FinalizedAt)
	b = appendText(appendText(b, a.AnswerNeutral), a.AnswerTranslated)
	return appendText(appendText(b, a.AnswerMessages), t.AnswerMetadata)
}

// ReadTurn reads a record of a turn.
func ReadTurn(record string) (*session.Turn, error) {
	p := &place{}
	return &p.turn, p.read(record)
}

// place is the memory of a turn with both halves.
type place struct {
	turn     session.Turn
	question events.Question
	answer   events.Answer
}

// read reads a record; the texts of the turn are parts of it.
func (p *place) read(record string) error {
	r := &reader{unread: record}
	if r.byte() != version {
		return errors.New("a turn of an unknown version")
	}
	t, q := &p.turn, &p.question
	t.Question = q
	state := r.byte()
	t.ID = r.id()
	flags := r.byte()
	t.TranslateChat, t.Asked = flags&flagTranslate != 0, flags&flagAsked != 0
	q.TranslateChat = t.TranslateChat
	if flags&flagReplaces != 0 {
		t.Replaces = r.id()
	}
	t.Place, t.Started, t.Version = r.uint(), r.uint(), int(r.int())
	t.CreatedAt = r.time()
	for _, s := range []*string{&t.RequestID, &q.PipelineName, &q.Consultant, &q.Repository, &q.QuestionNeutral,
		&q.QuestionTranslated} {
		*s = r.text()
	}
	q.QuestionMessages, q.Metadata = r.raw(), r.raw()
	r.count(t)
	r.parts(t)
	if state == finalized {
		r.answer(t, &p.answer)
		r.count(t)
		r.parts(t)
	}
	return r.done()
}

func (r *reader) count(t *session.Turn) { t.LastMessages = uint16(r.uint()) } //nolint:gosec // as written

// idOf returns the bytes of a turn's id, from its record.
func idOf(record string) string { return record[2 : 2+len(uuid.Nil)] }

// placeOf returns the place of a turn, from its record.
func placeOf(record string) uint64 {
	r := &reader{unread: record[2+len(uuid.Nil):]}
	if r.byte()&flagReplaces != 0 {
		r.id()
	}
	return r.uint()
}

func (r *reader) answer(t *session.Turn, a *events.Answer) {
	a.AnswerTranslatedIsFallback = r.byte()&flagFallback != 0
	t.Status, t.Answer = session.Finalized, a
	t.Final, t.FinalizedAt = r.uint(), r.time()
	a.AnswerNeutral, a.AnswerTranslated = r.text(), r.text()
	a.AnswerMessages, t.AnswerMetadata = r.raw(), r.raw()
}

// AppendHead appends a session without its turns.
func AppendHead(b []byte, h session.Head) []byte {
	b = appendText(append(b, version), h.Identity)
	for _, n := range []uint64{h.LinkedAt, h.Boundary, h.ResetAt, h.Erased} {
		b = binary.AppendUvarint(b, n)
	}
	for _, t := range []time.Time{h.CreatedAt, h.LastActive, h.ErasedAt} {
		b = appendTime(b, t)
	}
	for _, n := range []int{h.Finalized, h.Pending, h.ShownFinalized, h.ShownPending} {
		b = binary.AppendVarint(b, int64(n))
	}
	is, from := h.Description(), h.Fork()
	b = binary.AppendUvarint(b, is.DescribedAt)
	for _, text := range []string{is.Title, is.Metadata, string(is.Kind), is.CurrentBranch} {
		b = appendText(b, text)
	}
	b = binary.AppendUvarint(b, from.ForkedAt)
	for _, text := range []string{from.RequestID, from.From, from.Root, from.Lineage} {
		b = appendText(b, text)
	}
	return b
}

// ReadHead reads what AppendHead wrote.
func ReadHead(record string) (h session.Head, err error) {
	r := &reader{unread: record}
	if r.byte() != version {
		return h, errors.New("a session of an unknown version")
	}
	h.Identity = r.text()
	for _, n := range []*uint64{&h.LinkedAt, &h.Boundary, &h.ResetAt, &h.Erased} {
		*n = r.uint()
	}
	for _, t := range []*time.Time{&h.CreatedAt, &h.LastActive, &h.ErasedAt} {
		*t = r.time()
	}
	for _, n := range []*int{&h.Finalized, &h.Pending, &h.ShownFinalized, &h.ShownPending} {
		*n = int(r.int())
	}
	is := session.Description{
		DescribedAt: r.uint(), Title: r.text(), Metadata: r.text(), Kind: events.SessionKind(r.text()),
		CurrentBranch: r.text(),
	}
	from := session.Fork{
		ForkedAt: r.uint(), RequestID: r.text(), From: r.text(), Root: r.text(), Lineage: r.text(),
	}
	h.HeldDescription = session.DescribedBy(is).ForkedBy(from)
	return h, r.done()
}

func appendText[T string | json.RawMessage](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendTime can store the zero time, and any time in a foreign tombstone.
func appendTime(b []byte, t time.Time) []byte {
	return binary.AppendUvarint(binary.AppendVarint(b, t.Unix()), uint64(t.Nanosecond())) //nolint:gosec // not negative
}

// reader reads what was appended. Past the end it returns zeros, and done then returns an error.
type reader struct {
	unread string
	bad    bool
}

func (r *reader) take(n uint64) string {
	if n > uint64(len(r.unread)) {
		r.bad, r.unread = true, ""
		return ""
	}
	s := r.unread[:n]
	r.unread = r.unread[n:]
	return s
}

func (r *reader) byte() byte {
	if s := r.take(1); s != "" {
		return s[0]
	}
	return 0
}

func (r *reader) id() (id uuid.UUID) {
	copy(id[:], r.take(uint64(len(id))))
	return id
}

func (r *reader) uint() uint64 {
	n, size := binary.Uvarint([]byte(r.unread[:min(len(r.unread), binary.MaxVarintLen64)]))
	if size <= 0 {
		r.bad, r.unread = true, ""
		return 0
	}
	r.unread = r.unread[size:]
	return n
}

func (r *reader) int() int64 {
	n := r.uint()
	return int64(n>>1) ^ -int64(n&1) // zigzag, as encoding/binary has it
}

func (r *reader) time() time.Time {
	return time.Unix(r.int(), int64(r.uint())).UTC() //nolint:gosec // nanoseconds of a second
}

func (r *reader) text() string { return r.take(r.uint()) }

// raw returns a copy of some bytes, nil if there are none.
func (r *reader) raw() json.RawMessage {
	s := r.text()
	if s == "" {
		return nil
	}
	return json.RawMessage(s)
}

func (r *reader) done() error {
	if r.bad || r.unread != "" {
		return errors.New("a record is cut or too long")
	}
	return nil
}
