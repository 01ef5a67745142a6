package backup

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// Erasure is a fact that something was redacted or erased, in the form in which the log is
// printed (CloudEvents): it holds no text.
type Erasure struct {
	Type string      `json:"type"`
	Data ErasureData `json:"data"`
}

// ErasureData names what went: a turn of a session, a session, or an identity.
type ErasureData struct {
	SessionID  string    `json:"session_id,omitempty"`
	IdentityID string    `json:"identity_id,omitempty"`
	TurnID     uuid.UUID `json:"turn_id,omitzero"`
	Reason     string    `json:"reason,omitempty"`
	RedactedBy string    `json:"redacted_by,omitempty"`
	ErasedBy   string    `json:"erased_by,omitempty"`
	// Tombstones are of all versions of the turn: an older log may know an older one only.
	Tombstones []struct {
		TurnID uuid.UUID `json:"turn_id"`
	} `json:"tombstones,omitempty"`
}

// Turns are all versions of the turn that was redacted, those that TurnRedacted names
// first.
func (d *ErasureData) Turns() []uuid.UUID {
	out := []uuid.UUID{d.TurnID}
	for _, t := range d.Tombstones {
		if t.TurnID != d.TurnID {
			out = append(out, t.TurnID)
		}
	}
	return out
}

const (
	// maxErasures bounds all erasures that come with a backup, in bytes; maxLine bounds one line of their list.
	maxErasures = 256 << 20
	maxLine     = 16 << 20
)

// ReadErasures reads lines of CloudEvents, as turnledger replay prints them, and leaves out
// all that erase nothing.
func ReadErasures(from io.Reader) (out []Erasure, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var e struct {
			Type string          `json:"type"`
			Data json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d is no event: want what turnledger replay prints", n)
		}
		switch events.WithdrawalOf(e.Type) {
		case events.WithdrawsNothing, events.WithdrawsVersion:
			continue
		case events.WithdrawsTurn, events.WithdrawsSession, events.WithdrawsIdentity:
		}
		x := Erasure{Type: e.Type}
		if err := json.Unmarshal(e.Data, &x.Data); err != nil || x.Data.SessionID == "" && x.Data.IdentityID == "" {
			return nil, fmt.Errorf("line %d does not say what was erased", n)
		}
		out = append(out, x)
	}
	return out, lines.Err()
}
