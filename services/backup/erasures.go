package backup

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// Erasure is a redaction or an erasure, in the form in which the log is printed (CloudEvents). It holds no text.
type Erasure struct {
	Type string      `json:"type"`
	Data ErasureData `json:"data"`
}

// ErasureData names what was erased: a turn of a session, a session, or an identity.
type ErasureData struct {
	SessionID  string    `json:"session_id,omitempty"`
	IdentityID string    `json:"identity_id,omitempty"`
	TurnID     uuid.UUID `json:"turn_id,omitzero"`
	PruneID    string    `json:"prune_id,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	RedactedBy string    `json:"redacted_by,omitempty"`
	ErasedBy   string    `json:"erased_by,omitempty"`
	// Tombstones name all versions of the turn, since an older log may know only an older version.
	Tombstones []struct {
		TurnID uuid.UUID `json:"turn_id"`
	} `json:"tombstones,omitempty"`
}

// Turns returns all versions of the redacted turn. The versions that TurnRedacted names come first.
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
	// maxErasures bounds the erasures that come with a backup, in bytes; maxLine bounds one line of their list.
	maxErasures = 256 << 20
	maxLine     = 16 << 20
)

// ReadErasures reads lines of CloudEvents, as turnledger replay prints them, and returns only the erasures.
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
		case events.WithdrawsNothing, events.WithdrawsDescription, events.WithdrawsVersion:
			continue
		case events.WithdrawsMessages, events.WithdrawsTurn, events.WithdrawsSession, events.WithdrawsIdentity:
		}
		x := Erasure{Type: e.Type}
		if err := json.Unmarshal(e.Data, &x.Data); err != nil || x.Data.SessionID == "" && x.Data.IdentityID == "" {
			return nil, fmt.Errorf("line %d does not say what was erased", n)
		}
		out = append(out, x)
	}
	return out, lines.Err()
}
