package respond

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
)

const metadataMember = "metadata"

// Metadata reads the metadata of a request, or refuses what is beyond OpenAI's bounds (docs/openai.md). A null value is
// nil there: an update of a conversation takes its key away.
func Metadata(raw json.RawMessage) (map[string]*string, error) {
	if message.IsNull(raw) {
		return nil, nil //nolint:nilnil // none is a valid answer
	}
	var out map[string]*string
	var each map[string]json.RawMessage
	switch {
	case json.Unmarshal(raw, &each) != nil:
		return nil, refuse("invalid_type", metadataMember, "metadata must be an object.")
	case json.Unmarshal(raw, &out) != nil:
		return nil, refuse("invalid_type", metadataMember, "A value of metadata is not a string.")
	case len(out) > events.MaxMetadataKeys:
		return nil, refuse("object_above_max_properties", metadataMember, "metadata has more than 16 keys.")
	}
	for key, v := range out {
		value := ""
		if v != nil {
			value = *v
		}
		switch {
		case key == "":
			return nil, refuse("invalid_value", metadataMember, "A key of metadata is empty.")
		case strings.ContainsRune(key, 0) || strings.ContainsRune(value, 0):
			return nil, refuse("invalid_value", metadataMember, "metadata holds the character U+0000.")
		case utf8.RuneCountInString(key) > events.MaxMetadataKey:
			return nil, refuse("property_name_above_max_length", metadataMember,
				"A key of metadata has more than 64 characters.")
		case utf8.RuneCountInString(value) > events.MaxMetadataValue:
			return nil, refuse("string_above_max_length", metadataMember,
				"A value of metadata has more than 512 characters.")
		}
	}
	return out, nil
}

// metadata refuses the metadata that a response could not show.
func (p *parser) metadata() {
	values, err := Metadata(p.members[metadataMember])
	if p.err == nil {
		p.err = err
	}
	for _, v := range values {
		if v == nil {
			p.refuse("invalid_type", metadataMember, "A value of metadata is not a string.")
		}
	}
}
