package session

import (
	"bytes"
	"encoding/json"
	"iter"
	"math"
	"slices"
	"sync/atomic"

	"github.com/turnledger/turnledger/events"
)

// extension is one extension of a turn, with those before it. It never changes, since copies of the turn share it. What
// a redaction leaves of it is its sequence. A prune of the turn stands among its extensions, without a half.
type extension struct {
	seq    uint64
	id     string
	half   events.Half
	digest uint64
	// number of the extensions of the turn up to this one, and the sequence of the last prune among them, or 0.
	number   int
	prunedAt uint64
	// messages that it brought; 0 if that is not known.
	messages int
	before   *extension
	undone   *undone
	// ids are those of the extensions up to the last one whose number is a multiple of idsTogether.
	ids *ids
}

// idsTogether is how many ids are searched at once. An extension is compared with all before it, which in a turn of
// thousands would otherwise be the most of its cost.
const idsTogether = 64

// ids are the ids of some extensions, with those before them.
type ids struct {
	of     map[string]struct{}
	before *ids
}

func (i *ids) have(id string) bool {
	for ; i != nil; i = i.before {
		if _, has := i.of[id]; has {
			return true
		}
	}
	return false
}

// undone is what an answer was before an extension; nil in a slim state.
type undone struct {
	// shared: a copy of the turn has the answer that the extension made. Before that, only its state has it, so the
	// next extension appends to its messages in place. So the cost of an extension does not grow with the turn.
	shared atomic.Bool
	// answer is without messages, unless it had none; then cut is 0. Else cut is the length of its messages without
	// the bracket at their end.
	answer   events.Answer
	cut      int
	metadata json.RawMessage
}

// back goes from an extension to those before it.
func (x *extension) back() iter.Seq[*extension] {
	return func(yield func(*extension) bool) {
		for ; x != nil && yield(x); x = x.before {
		}
	}
}

// same reports whether two turns were extended by the same events.
func (x *extension) same(o *extension) bool {
	for ; x != nil && o != nil; x, o = x.before, o.before {
		if x.seq != o.seq || x.id != o.id || x.half != o.half || x.digest != o.digest {
			return false
		}
	}
	return x == o
}

// Extended is an extension that a turn has.
type Extended struct {
	ID  string
	Seq uint64
	// Half is empty in a tombstone, and where the turn was pruned.
	Half events.Half
	// Messages that it brought, or that a prune has left of it; 0 if that is not known.
	Messages int
}

// Extensions returns the extensions of the turn, oldest first.
func (t *Turn) Extensions() (list []Extended) {
	for x := range t.extended.back() {
		list = append(list, x.shown())
	}
	slices.Reverse(list)
	return list
}

func (x *extension) shown() Extended { return Extended{x.id, x.seq, x.half, x.messages} }

func (t *Turn) note(x extension) {
	x.number, x.before, x.prunedAt, x.ids = 1, t.extended, 0, nil
	if b := x.before; b != nil {
		x.number, x.prunedAt, x.ids = b.number+1, b.prunedAt, b.ids
	}
	if x.half == "" && x.id != "" {
		x.prunedAt = x.seq
	}
	if t.extended = &x; x.number%idsTogether != 0 {
		return
	}
	x.ids = &ids{map[string]struct{}{}, x.ids}
	for y := range x.back() {
		if x.ids.of[y.id] = struct{}{}; x.number-y.number == idsTogether-1 {
			break
		}
	}
}

// extensions returns how many extensions the turn has.
func (t *Turn) extensions() int {
	if t.extended == nil {
		return 0
	}
	return t.extended.number
}

// Last returns the sequence of the newest event that brought the turn texts.
func (t *Turn) Last() uint64 {
	last := max(t.Started, t.Final)
	if t.extended != nil {
		last = max(last, t.extended.seq)
	}
	return last
}

// AnswerGrew reports whether the newest event that brought the turn texts extended its answer.
func (t *Turn) AnswerGrew() bool {
	return t.extended != nil && t.extended.half == events.HalfAnswer && t.extended.seq == t.Last()
}

// extension returns the turn's extension of an id, or nil.
func (t *Turn) extension(id string) *extension {
	for x := range t.extended.back() {
		switch {
		case x.half != "" && x.id == id:
			return x
		case x.number%idsTogether == 0 && !x.ids.have(id):
			return nil
		}
	}
	return nil
}

// ExtensionAt returns the sequence of the turn's extension of an id, or 0.
func (t *Turn) ExtensionAt(id string) uint64 { return t.extension(id).at() }

// at returns the sequence of an extension; 0 for nil.
func (x *extension) at() uint64 {
	if x == nil {
		return 0
	}
	return x.seq
}

// Unextendable returns the code of why a half of a turn can't be extended, or "" if it can.
func Unextendable(t *Turn, half events.Half) string {
	switch {
	case t == nil:
		return CodeTurnNotStarted
	case t.Status == Redacted:
		return CodeTurnRedacted
	case t.Status == Replaced:
		return CodeTurnReplaced
	case half == events.HalfQuestion && t.Status != Pending:
		return CodeTurnFinalized
	case half == events.HalfAnswer && t.Status == Pending:
		return CodeTurnPending
	}
	return ""
}

func (s *State) extend(e events.Recorded, f *events.TurnExtended) Change {
	t := s.Turn(f.TurnID)
	if t != nil && t.Status != Redacted {
		if old := t.extension(f.ExtensionID); old != nil {
			return stated(t, old.digest == e.Digest, CodeSecondExtension)
		}
	}
	if code := Unextendable(t, f.Half); code != "" {
		return anomaly(code)
	}
	x := extension{
		seq: e.Position.Seq, id: f.ExtensionID, half: f.Half, digest: e.Digest, messages: t.countMessages(f),
	}
	t.Asked = t.Asked || f.Half == events.HalfQuestion && len(f.Settings) > 0
	s.rules().take(t, x, &f.Extension, f.Metadata)
	return Change{Kind: WasExtended, Turn: t}
}

// take adds an extension to a turn, with its texts unless the rules are slim.
func (r Rules) take(t *Turn, x extension, texts *events.Extension, metadata json.RawMessage) {
	mine := t.ownsAnswer()
	if x.half == events.HalfAnswer && t.Answer != nil {
		x.undone = before(t)
	}
	t.note(x)
	if !r.Slim {
		r.extend(t, texts, metadata, mine)
	}
}

// ownsAnswer reports whether the last extension made the turn's answer, and no copy of the turn has it.
func (t *Turn) ownsAnswer() bool {
	x := t.extended
	return x != nil && x.undone != nil && !x.undone.shared.Load()
}

// shareAnswer notes that a copy of the turn is made. It may be called by several readers at once.
func (t *Turn) shareAnswer() {
	if t.ownsAnswer() {
		t.extended.undone.shared.Store(true)
	}
}

// before returns what the answer of a turn is now.
func before(t *Turn) *undone {
	u := &undone{answer: *t.Answer, metadata: t.AnswerMetadata}
	if list, some := openList(t.Answer.AnswerMessages); some {
		u.cut, u.answer.AnswerMessages = len(list), nil
	}
	return u
}

// BroughtBy reports whether the event of a sequence opened, answered, extended or pruned the turn.
func (t *Turn) BroughtBy(seq uint64) bool {
	if seq == t.Started || seq == t.Final {
		return seq != 0
	}
	for x := range t.extended.back() {
		if x.seq <= seq {
			return x.seq == seq
		}
	}
	return false
}

// AnswerPart is what an event brought to the answer of a turn: so many of its messages, from the one with the number
// From on.
type AnswerPart struct {
	Seq            uint64
	From, Messages int
}

// AnswerParts returns what the events brought to the answer of a finalized turn, in order; nil if that is not known.
func (t *Turn) AnswerParts() (parts []AnswerPart) {
	if t.Status != Finalized || t.LastMessages == math.MaxUint16 {
		return nil
	}
	end, first := int(t.LastMessages), t.Begun(events.HalfAnswer)
	for x := range t.extended.back() {
		if x.seq <= first {
			break
		}
		if x.messages == 0 {
			return nil
		}
		end -= x.messages
		parts = append(parts, AnswerPart{x.seq, end, x.messages})
	}
	if end < 0 {
		return nil
	}
	parts = append(parts, AnswerPart{first, 0, end})
	slices.Reverse(parts)
	return parts
}

// Part is an extension of a turn with what it brought, for views that store turns.
type Part struct {
	Extended

	// Texts has no messages if the halves of the turn have them already.
	Texts    events.Extension
	Metadata json.RawMessage
}

// PartOf returns the part that an event has just added to a turn, as far as views may show it.
func (r Rules) PartOf(t *Turn, texts events.Texts) Part {
	return Part{t.extended.shown(), *texts.Extension, r.Metadata(texts.Metadata)}
}

// Parts returns the turn as it was before events extended its answer, as far as the last prune has left that, and the
// turn's extensions, oldest first. Added to that turn they make the turn again.
func (t *Turn) Parts() (Turn, []Part) {
	parts := make([]Part, t.extensions())
	if len(parts) == 0 {
		return *t, nil
	}
	begun, i := t.Begun(events.HalfAnswer), len(parts)
	for x, a, m, list := t.extended, t.Answer, t.AnswerMetadata, json.RawMessage(nil); x != nil; x = x.before {
		i--
		parts[i].Extended = x.shown()
		u := x.undone
		if u == nil || x.seq <= begun {
			continue
		}
		if list == nil {
			list, _ = openList(a.AnswerMessages)
		}
		parts[i].Texts, parts[i].Metadata = u.since(a, list), differing(m, u.metadata)
		a, m, list = &u.answer, u.metadata, list[:u.cut]
	}
	base := *t
	if t.Answer != nil {
		base.shorten(begun)
	}
	return base, parts
}

// since returns what made an answer with a list of messages, which is open, of what it was before.
func (u *undone) since(now *events.Answer, list json.RawMessage) events.Extension {
	x := events.Extension{Half: events.HalfAnswer}
	cut := u.cut
	if cut == 0 && u.answer.AnswerNeutral != "" { // a text became the first message
		h := half{role: "assistant", neutral: &u.answer.AnswerNeutral, translated: &u.answer.AnswerTranslated}
		cut = len("[") + len(h.first())
	}
	x.Messages = append(append(json.RawMessage("["), list[cut+1:]...), ']')
	if now.AnswerNeutral != u.answer.AnswerNeutral || now.AnswerTranslated != u.answer.AnswerTranslated {
		x.AnswerNeutral = now.AnswerNeutral
	}
	return x
}

func differing(raw, before json.RawMessage) json.RawMessage {
	if bytes.Equal(raw, before) {
		return nil
	}
	return raw
}

// Add adds a part to a turn, as the fold adds the event. It does not tell the repeat of the event from another event.
func (t *Turn) Add(p Part) {
	x := extension{seq: p.Seq, id: p.ID, half: p.Half, messages: p.Messages}
	switch {
	case p.Texts.Messages != nil:
		t.LastMessages = uint16(min(int(t.LastMessages)+p.Messages, math.MaxUint16)) //nolint:gosec // cut
		Rules{}.take(t, x, &p.Texts, p.Metadata)
	default:
		if t.note(x); p.Half == "" {
			t.undo()
		}
	}
}

// shorten takes the extensions after a sequence from the turn, which is the caller's own copy. What a prune took stays
// away.
func (t *Turn) shorten(after uint64) {
	var prunes []extension
	for x := t.extended; x != nil && x.seq > after; x = x.before {
		if x.half == "" {
			prunes = append(prunes, *x)
		}
		if u := x.undone; u != nil && t.Answer != nil {
			was := u.answer
			if u.cut > 0 {
				was.AnswerMessages = append(bytes.Clone(t.Answer.AnswerMessages[:u.cut]), ']')
			}
			t.Answer, t.AnswerMetadata = &was, u.metadata
		}
		t.LastMessages -= min(t.LastMessages, uint16(min(x.messages, math.MaxUint16))) //nolint:gosec // not negative
		t.extended = x.before
	}
	for _, x := range slices.Backward(prunes) {
		t.note(x)
	}
}

// bare leaves the sequences of the turn's extensions.
func (t *Turn) bare() {
	list := t.Extensions()
	t.extended = nil
	for _, x := range list {
		t.note(extension{seq: x.Seq})
	}
}

// extend appends to a half of a turn what may be shown of an extension. A half that the turn lacks stays nil. The
// question and the answer of the turn may be shared, so they are replaced. mine: nobody else has the messages of the
// answer, and an extension made them, so that they are appended to in place.
func (r Rules) extend(t *Turn, x *events.Extension, metadata json.RawMessage, mine bool) {
	if q := t.Question; q != nil && x.Half == events.HalfQuestion {
		own := *q
		h := half{"user", &own.QuestionNeutral, &own.QuestionTranslated, &own.QuestionMessages, false, false}
		if x.QuestionNeutral != "" {
			own.Metadata, _ = WithoutMember(own.Metadata, FallbackKey)
		}
		h.extend(x.Messages, x.QuestionNeutral)
		own.Metadata = MergeMetadata(own.Metadata, r.Metadata(metadata))
		t.Question = &own
	}
	if a := t.Answer; a != nil && x.Half == events.HalfAnswer {
		own := *a
		h := half{
			"assistant", &own.AnswerNeutral, &own.AnswerTranslated, &own.AnswerMessages, own.AnswerTranslatedIsFallback,
			mine,
		}
		h.extend(x.Messages, x.AnswerNeutral)
		t.Answer, t.AnswerMetadata = &own, MergeMetadata(t.AnswerMetadata, r.Metadata(metadata))
	}
}

// half points to the texts of a half of a turn, and has the role of its speaker.
type half struct {
	role                string
	neutral, translated *string
	messages            *json.RawMessage
	// copied: the translation is a copy of the neutral text.
	copied bool
	// mine: the messages may be appended to in place.
	mine bool
}

// extend appends messages. A neutral text takes the place of the half's, whose translation goes, unless it is only a
// copy.
func (h half) extend(list json.RawMessage, neutral string) {
	joined, some := openList(*h.messages)
	added, more := openList(list)
	switch {
	case !more: // no event is so
		return
	case !some && *h.neutral != "":
		joined, some = append(json.RawMessage("["), h.first()...), true
	case !h.mine:
		joined = append(make(json.RawMessage, 0, len(joined)+len(added)+2), joined...)
	}
	if some {
		joined = append(append(joined, ','), added[1:]...)
	} else {
		joined = append(joined, added...)
	}
	*h.messages = append(joined, ']')
	if neutral == "" {
		return
	}
	*h.neutral = neutral
	if *h.translated = ""; h.copied {
		*h.translated = neutral
	}
}

// first returns the half's text as a message.
func (h half) first() json.RawMessage {
	m := struct {
		Role       string `json:"role"`
		Content    string `json:"content"`
		Translated string `json:"translated,omitempty"`
	}{h.role, *h.neutral, *h.translated}
	if m.Translated == m.Content {
		m.Translated = ""
	}
	return events.Raw(m)
}

// openList returns a JSON array without the bracket at its end, and whether it has elements. What is no array is empty.
func openList(raw json.RawMessage) (json.RawMessage, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) < 2 || raw[0] != '[' {
		return nil, false
	}
	open := raw[:len(raw)-1]
	if len(bytes.TrimSpace(open)) == 1 {
		return nil, false
	}
	return open, true
}
