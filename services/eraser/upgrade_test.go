package eraser_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
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
	receipt := must.Get(w.history.EraseSession(t.Context(), "erased", services.Erasure{}))(t)
	for _, seq := range []uint64{1, 2, 4, 5} { // all but the redaction and the erasure
		must.Get(inOnePiece(w.log).Erase(t.Context(), events.Position{Seq: seq}))(t)
	}
	note := func(key, value string) { require.NoError(t, w.notes.Put(t.Context(), key, json.RawMessage(value))) }
	created := must.Get(json.Marshal(w.log.Created(0)))(t)
	note(fmt.Sprintf("eraser.redacted.0.%d.log", at.Seq),
		fmt.Sprintf(`{"created":%s,"place":"log","erased":2,"open":true}`, created))
	name := base64.RawURLEncoding.EncodeToString
	note("erasing."+name([]byte(receipt))+"."+name([]byte("erased")), `{"events":2,"erased":2,"turns":1}`)
	kept, gone := w.turn("kept", "r1", "KEPT"), events.TurnID("erased", "r1")
	note("pruned."+kept.String(), `"kept"`)
	note("pruned."+gone.String(), `"erased"`)
	w.erase(inOnePiece(w.log), eraser.Config{})
	for _, id := range []string{at.String(), receipt} {
		require.Equal(t, 2, *w.complete(id).Places[0].Erased)
	}
	for turn, want := range map[uuid.UUID]string{kept: "kept", gone: ""} {
		session := must.Get(eraser.SessionOfErased(t.Context(), w.notes, turn))(t)
		require.Equal(t, want, session)
		revision := must.Get(w.notes.Read(t.Context(), "pruned."+turn.String(), new(json.RawMessage)))(t)
		require.Zero(t, revision, "which no erasure would drop")
	}
}
