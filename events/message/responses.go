package message

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events"
)

// Responses renders messages as the input of an endpoint that speaks OpenAI's Responses API. What such an endpoint
// refuses is mended, as Chat does it. bare leaves out what is sent as it came: items that are neither messages nor
// calls nor outputs, and what stands beside those.
func Responses(messages []Message, bare bool) []Item {
	all := inputs(messages, bare)
	last := len(all) - 1
	for last >= 0 && !all[last].ofUser() {
		last--
	}
	sent := map[string]bool{} // ids of whole items: the endpoint refuses one that stands twice
	out := []Item{}
	for n := range all {
		i := &all[n]
		if id := i.CallID(); n < last && len(id) > longestID {
			i.Item = i.With("call_id", ShortID(id, longestID))
		}
		var next *input
		if n+1 < len(all) {
			next = &all[n+1]
		}
		if item := i.sent(next); item != nil && !sent[item.ID()] {
			out = append(out, item)
			sent[item.ID()] = item.ID() != ""
		}
	}
	return out
}

// longestID is the most that the API takes of a call's id.
const longestID = 64

// input is an item of an input. call is that of an output, if it has one.
type input struct {
	Item

	of       Message
	call     *input
	answered bool
}

// inputs returns the items of messages, and notes which calls have their outputs.
func inputs(messages []Message, bare bool) (all []input) {
	for _, m := range flat(messages) {
		if m.stored == nil {
			m = read(m.JSON())
		}
		if bare {
			own := *m.stored
			own.Item, own.ItemIDs = nil, nil
			m.stored = &own
		}
		for _, i := range m.says() {
			all = append(all, input{Item: i, of: m})
		}
	}
	open := map[string]*input{} // the last call of each id, until it has its output
	for n := range all {
		switch i := &all[n]; {
		case i.of.onlyItem(), i.CallID() == "":
		case i.IsCall():
			open[i.CallID()] = i
		case open[i.CallID()] != nil:
			i.call = open[i.CallID()]
			i.call.answered = true
			delete(open, i.CallID())
		}
	}
	return all
}

// flat returns messages, each in the form of a chat by itself, for an endpoint that takes calls and results as items of
// their own. It has no names of speakers, so a name stands in front of the text. Messages of items stay as they are,
// but for their calls.
func flat(messages []Message) (out []Message) {
	question := lastQuestion(messages)
	for n, m := range messages {
		of := m.stored != nil && m.ofItem()
		if of && len(m.everyCall()) == 0 && m.role != Function {
			out = append(out, m)
			continue
		}
		for _, c := range m.named().inChat(n > question) {
			if of {
				c.all[itemMember] = m.stored.Item
			}
			out = append(out, read(c.json()))
		}
	}
	return out
}

// ofUser reports whether the item is sent as a message of a user: as an output is that has no call.
func (i *input) ofUser() bool {
	return i.of.role == User || i.of.role == Tool && i.call == nil
}

// sent returns what the endpoint gets of an item, or nil if that is nothing. It refuses a call without its output, and
// an output without its call, so these become text.
func (i *input) sent(next *input) Item {
	says := func(role string, content any) Item {
		return Item{"role": asText(role), "content": events.Raw(content)}.and(i.Item, "phase")
	}
	only := func(names ...string) Item {
		out := Item{}
		return out.and(i.Item, append(names, "type", "call_id", "namespace", "caller")...)
	}
	switch kind := i.Type(); {
	case i.of.onlyItem():
		return i.whole(next)
	case i.of.role == Tool && i.call == nil:
		return says(User, "[Tool result: "+strings.Join(i.of.Texts(), "")+"]")
	case i.of.role == Tool:
		out := only()
		out["output"] = i.content("output")
		if out["type"] = asText(typeCallOutput); i.call.Type() == typeCustom {
			out["type"] = asText(typeCustomOutput)
		}
		return out
	case kind == typeMessage:
		content := i.content("content")
		if silent(content) {
			return nil
		}
		return says(i.of.role, content)
	case !i.answered:
		return says(Assistant, "[Tool call: "+i.Name()+" "+i.Text("arguments")+i.Text("input")+"]")
	default:
		return only("name", "arguments", "input")
	}
}

// and adds those members of another item that have a value.
func (i Item) and(o Item, names ...string) Item {
	for _, name := range names {
		if !IsNull(o[name]) {
			i[name] = o[name]
		}
	}
	return i
}

// whole returns an item that is sent as it came, or nil for one that the endpoint refuses: reasoning without its
// encrypted content, of another vendor, or without the item that followed it.
func (i *input) whole(next *input) Item {
	if i.Type() == typeReasoning {
		foreign := i.Encrypted() == "" || strings.HasPrefix(i.Encrypted(), "anthropic.")
		if foreign || next == nil || next.of.role != Assistant {
			return nil
		}
	}
	return i.atEndpoint()
}

// content returns a content or an output as it is sent. What an assistant said is a text, since parts of it would need
// members that only the endpoint's own answers have.
func (i *input) content(member string) json.RawMessage {
	if isText(i.of.stored.Content) {
		return i.of.stored.Content
	}
	if parts := legalParts(i.Parts(member)); i.of.role != Assistant && len(parts) > 0 {
		return events.Raw(parts)
	}
	return asText(strings.Join(i.of.Texts(), ""))
}

// legalParts returns the parts that the API takes, with what they say. An image or a file without data, id and address
// says nothing to the endpoint: a text stands beside it.
func legalParts(parts []Item) (out []Item) {
	for n, p := range parts {
		if holdsNothing(p) && n+1 < len(parts) && p.StandIn() != "" && parts[n+1].Text("text") == p.StandIn() {
			continue
		}
		if p = p.legal(); p != nil {
			out = append(out, p)
		}
	}
	return out
}

func (i Item) legal() Item {
	kept := Item{}
	for name, value := range i {
		empty := slices.Contains([]string{"image_url", "file_id", "file_data", "file_url"}, name) && i.Text(name) == ""
		if !empty && !IsNull(value) {
			kept[name] = value
		}
	}
	if url := kept.Text("image_url"); !IsAddress(url) {
		delete(kept, "image_url")
	}
	words := partOf(i.JSON()).words()
	switch i.Type() {
	case partInput:
		if words != "" {
			return kept
		}
	case partImage:
		if !slices.Contains([]string{"low", "high", "auto", "original"}, kept.Text("detail")) {
			kept["detail"] = asText("auto")
		}
		if !holdsNothing(kept) {
			return kept
		}
	case partFile:
		if !holdsNothing(kept) {
			return kept
		}
	}
	if words == "" {
		return nil
	}
	return Item{"type": asText(partInput), "text": asText(words)}
}
