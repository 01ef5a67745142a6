package responses

import "encoding/json"

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
