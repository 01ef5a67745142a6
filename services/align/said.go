package align

import (
	"encoding/json"

	"github.com/turnledger/turnledger/events/message"
)

// Said returns a digest of each item that chat messages are, those of the system and reasoning aside.
func Said(list []json.RawMessage) (out [][]byte) {
	for _, raw := range list {
		for _, i := range message.Items(raw) {
			switch role := i.Text("role"); {
			case role == message.System, role == message.Developer, i.Type() == "reasoning":
			default:
				out = append(out, Digest(i.Sealed().Normal().WithoutID()))
			}
		}
	}
	return out
}
