package message

import (
	"maps"
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

// upstream is the member of an item with what its endpoint has in the place of ids of ours, by their members. It is
// ours: no client brings it, and none is shown it.
const upstream = "upstream"

// KnownAs returns an item that has another id in a member at the endpoint which gets the item as it came.
func (i Item) KnownAs(member, theirs string) Item {
	return i.With(upstream, asMembers(i[upstream]).With(member, theirs))
}

// KnownID returns the id that the item has at its endpoint, where that is not the one that it has here; or "".
func (i Item) KnownID() string { return asMembers(i[upstream]).ID() }

// approvals are the members by which items name a request for approval. The official document has both.
var approvals = []string{"approval_request_id", "request_id"}

// Approval returns the id of the request for approval that the item speaks of, or "".
func (i Item) Approval() string {
	if i.Type() == "mcp_approval_response" || i.Type() == "mcp_call" {
		return i.Text(approvals[0])
	}
	return ""
}

// Approving returns the item with an id of ours in the place of that of the request for approval which it speaks of.
func (i Item) Approving(ours, theirs string) Item {
	for _, member := range approvals {
		if i[member] != nil {
			i = i.With(member, ours).KnownAs(member, theirs)
		}
	}
	return i
}

// Approvals returns ids of ours of requests for approval, by those that their endpoint has for them, as far as messages
// speak of them.
func Approvals(messages []Message) map[string]string {
	out := map[string]string{}
	for _, m := range messages {
		if i := asMembers(m.stored.Item); i.Approval() != "" {
			out[asMembers(i[upstream]).Text(approvals[0])] = i.Approval()
		}
	}
	return out
}

// atEndpoint returns the item as its endpoint knows it.
func (i Item) atEndpoint() Item {
	known := asMembers(i[upstream])
	i = i.without(upstream)
	maps.Copy(i, known)
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
	case typeMessage, typeCall, typeCustom, typeReasoning, typeCompaction:
		return false
	default:
		return !strings.HasSuffix(kind, "_output")
	}
}
