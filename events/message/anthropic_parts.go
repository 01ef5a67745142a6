package message

import (
	"slices"
	"strings"
)

// shown returns the blocks of a tool's result that shows images; of any other result none.
func (m Message) shown() []block {
	if m.stored == nil || !slices.ContainsFunc(m.stored.parts, func(p part) bool { return p.data() != nil }) {
		return nil
	}
	return m.contentBlocks()
}

// image returns the source of an image that the API takes: an address that it can fetch, or the data. Nil if the part
// is none.
func (p part) image() map[string]string {
	if url := p.url(); strings.HasPrefix(url, "https://") {
		return map[string]string{"type": "url", "url": url}
	}
	return p.data()
}

// data returns the source of an image that stands in its own address, or nil. The log keeps no such image: it is of the
// request that is being answered.
func (p part) data() map[string]string {
	kind, data, _ := strings.Cut(strings.TrimPrefix(p.address(), "data:"), ";base64,")
	if !slices.Contains(imageTypes, kind) || data == "" {
		return nil
	}
	return map[string]string{"type": "base64", "media_type": kind, "data": data}
}

// imageTypes are those of images that the API takes.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// Forms of the encrypted content of a thought of Anthropic's models: the signature of a block that can be read, or the
// data of one that can't.
const (
	SignedThought = "anthropic.signature:"
	HiddenThought = "anthropic.redacted:"
)

// thoughts returns what the API gets back of its model's thoughts, which are items of reasoning. Those of other vendors
// have no form here.
func (m Message) thoughts() []block {
	i := asMembers(m.stored.Item)
	if i.Type() != typeReasoning {
		return nil
	}
	if data, hidden := strings.CutPrefix(i.Encrypted(), HiddenThought); hidden && data != "" {
		return []block{{Type: hiddenThinking, Data: data}}
	}
	signature, signed := strings.CutPrefix(i.Encrypted(), SignedThought)
	if !signed || signature == "" {
		return nil
	}
	text := i.thought()
	return []block{{Type: thinking, Thinking: &text, Signature: signature}}
}
