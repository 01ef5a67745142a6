package responses

import (
	"encoding/json"
	"strings"
)

// carried are members of items that no chat message has a place for, and that the endpoint wants to see again.
type carried map[string]json.RawMessage

// carriedBy returns those of an item.
func carriedBy(item json.RawMessage) carried {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(item, &all) // another form has none
	out := carried{}
	for _, name := range []string{"phase", "namespace", "caller"} {
		if v := all[name]; v != nil && string(v) != "null" {
			out[name] = v
		}
	}
	return out
}

// on adds them to an item, unless that is a text in the place of another one.
func (c carried) on(item members) members {
	_, typed := item["type"]
	for name, v := range c {
		if typed != (name == "phase") {
			item[name] = v
		}
	}
	return item
}

// ownID begins encrypted content that was given out with the endpoint's id before it. The endpoint takes encrypted
// content with that id only, and what the server shows has an id of its own, by which a client can refer to it.
const ownID = "responses.id:"

// named returns reasoning with the endpoint's id in its encrypted content.
func named(item json.RawMessage) json.RawMessage {
	return changed(item, func(id, content string) (string, string) {
		if id == "" || content == "" {
			return id, content
		}
		return id, ownID + id + ":" + content
	})
}

// unnamed undoes named.
func unnamed(item json.RawMessage, encrypted string) json.RawMessage {
	rest, is := strings.CutPrefix(encrypted, ownID)
	id, content, whole := strings.Cut(rest, ":")
	if !is || !whole {
		return item
	}
	return changed(item, func(string, string) (string, string) { return id, content })
}

// changed returns reasoning with another id and encrypted content.
func changed(item json.RawMessage, change func(id, content string) (string, string)) json.RawMessage {
	var all map[string]json.RawMessage
	var was struct {
		ID      string `json:"id"`
		Content string `json:"encrypted_content"`
	}
	if json.Unmarshal(item, &all) != nil || json.Unmarshal(item, &was) != nil {
		return item
	}
	id, content := change(was.ID, was.Content)
	if id != was.ID {
		all["id"], _ = json.Marshal(id)
	}
	if content != was.Content {
		all["encrypted_content"], _ = json.Marshal(content)
	}
	raw, _ := json.Marshal(all) // it came from JSON
	return raw
}
