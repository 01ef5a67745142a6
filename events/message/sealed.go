package message

import (
	"net/url"
	"strings"
)

// sealed begins encrypted content of reasoning that has the id of the endpoint that made it before it. The endpoint
// takes encrypted content with that id only, and what is shown here has an id of ours, by which clients refer to it.
const sealed = "responses.id:"

const encryptedMember = "encrypted_content"

// Encrypted returns the encrypted content of reasoning, or "".
func (i Item) Encrypted() string { return i.Text(encryptedMember) }

// Sealed returns reasoning of an endpoint that speaks Responses with its id in its encrypted content. What has no id,
// or content of another form, stays as it is.
func (i Item) Sealed() Item {
	id, content := i.ID(), i.Encrypted()
	_, foreign, _ := strings.Cut(content, ":") // Anthropic's forms, and this one
	if i.Type() != typeReasoning || id == "" || content == "" || foreign != "" {
		return i
	}
	return i.With(encryptedMember, sealed+url.QueryEscape(id)+":"+content)
}

// Unsealed returns reasoning as its endpoint knows it.
func (i Item) Unsealed() Item {
	rest, is := strings.CutPrefix(i.Encrypted(), sealed)
	named, content, whole := strings.Cut(rest, ":")
	id, err := url.QueryUnescape(named)
	if !is || !whole || err != nil {
		return i
	}
	return i.With(encryptedMember, content).With("id", id)
}

// Carried returns the members of an endpoint's message or call that chats have no place for, and that the endpoint
// wants to see again.
func (i Item) Carried() Item {
	out := Item{}
	for _, name := range []string{"phase", "namespace", "caller"} {
		if v := i[name]; !IsNull(v) {
			out[name] = v
		}
	}
	return out
}

// IsSentWhole reports whether an endpoint that speaks Responses gets the item as it came, with its id: a call of a tool
// of its own, or what else only it has.
func (i Item) IsSentWhole() bool {
	switch kind := i.Type(); kind {
	case typeMessage, typeCall, typeCustom, typeReasoning:
		return false
	default:
		return !strings.HasSuffix(kind, "_output")
	}
}
