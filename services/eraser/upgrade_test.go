package eraser_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// A version without proofs noted nothing of the servers. What it began is completed as it would have been. It also
// noted turns of responses without their sessions.
func TestWhatAVersionWithoutProofsBeganIsCompleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	at := w.redact("redacted", w.turn("redacted", "r1", "SECRET")).Position
	w.turn("erased", "r1", "SECRET")
	receipt, err := w.history.EraseSession(t.Context(), "erased", services.Erasure{})
	require.NoError(t, err)
	for _, seq := range []uint64{1, 2, 4, 5} { // all but the redaction and the erasure
		_, err := inOnePiece(w.log).Erase(t.Context(), events.Position{Seq: seq})
		require.NoError(t, err)
	}
	note := func(key, value string) { require.NoError(t, w.notes.Put(t.Context(), key, json.RawMessage(value))) }
	created, err := json.Marshal(w.log.Created(0))
	require.NoError(t, err)
	note(fmt.Sprintf("eraser.redacted.0.%d.log", at.Seq),
		fmt.Sprintf(`{"created":%s,"place":"log","erased":2,"open":true}`, created))
	name := base64.RawURLEncoding.EncodeToString
	note("erasing."+name([]byte(receipt))+"."+name([]byte("erased")), `{"events":2,"erased":2,"turns":1}`)
	kept, gone := w.turn("kept", "r1", "KEPT"), events.TurnID("erased", "r1")
	note("pruned."+kept.String(), `"kept"`)
	note("pruned."+gone.String(), `"erased"`)
	w.erase(inOnePiece(w.log), eraser.Config{})
	receipts := eraser.NewReceipts(on(inOnePiece(w.log)), w.notes, nil)
	for _, id := range []string{at.String(), receipt} {
		var got services.Receipt
		hang.Until(t, func() bool {
			got, err = receipts.Receipt(t.Context(), id)
			return err == nil && got.Complete()
		})
		require.Equal(t, 2, *got.Places[0].Erased)
	}
	for turn, want := range map[uuid.UUID]string{kept: "kept", gone: ""} {
		session, err := eraser.SessionOfErased(t.Context(), w.notes, turn)
		require.NoError(t, err)
		require.Equal(t, want, session)
		revision, err := w.notes.Read(t.Context(), "pruned."+turn.String(), new(json.RawMessage))
		require.NoError(t, err)
		require.Zero(t, revision, "which no erasure would drop")
	}
}
