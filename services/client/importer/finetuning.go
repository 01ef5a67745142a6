package importer

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// fineTuning reads the examples of OpenAI's fine-tuning, one a line. An example is a conversation, and is known by what
// it says: it has no id.
var fineTuning = format{
	holds: anyJSON,
	head: func(raw []byte, _ string) (head, error) {
		var e example
		if json.Unmarshal(raw, &e) != nil || len(e.Messages) == 0 {
			return head{}, errors.New("not an example with messages")
		}
		sum := sha256.New()
		for _, m := range e.Messages {
			text := encode(valueOf(m))
			_, _ = fmt.Fprintf(sum, "%d %s", len(text), text)
		}
		id, _ := uuid.FromBytes(sum.Sum(nil)[:16]) // 16 bytes
		id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
		return head{id: id.String()}, nil
	},
	read: func(records [][]byte, note func(...string)) (*tree, error) {
		var e example
		if err := json.Unmarshal(records[0], &e); err != nil {
			return nil, errors.New("not an example with messages")
		}
		noteMembers(records[0], note, "messages")
		t := &tree{}
		for i, raw := range e.Messages {
			m, err := parseMessage(raw)
			n := &node{id: fmt.Sprint(i + 1), parent: fmt.Sprint(i), in: []messageIn{m}}
			if err != nil {
				n.in, n.dropped = nil, "not as OpenAI's chat messages"
			}
			t.nodes = append(t.nodes, n)
		}
		return t, nil
	},
}

// example is a line of fine-tuning data.
type example struct {
	Messages []json.RawMessage `json:"messages"`
}
