package conversation_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// An event that names a turn and comes after the turn's redaction is an anomaly with this code, whatever its type: that
// is how the eraser finds it. The recorded envelopes hold an event of each type.
func TestAnEventAfterARedactionIsTold(t *testing.T) {
	t.Parallel()
	files := must.Get(filepath.Glob("../testdata/v1/*.json"))(t)
	told := 0
	for _, file := range files {
		f := recorded(t, file)
		if f == nil {
			continue
		}
		if _, goes := events.Remains(f); !goes {
			continue
		}
		w := newWorld("s", conversation.Rules{})
		redacted := w.turn("r")
		w.append(&events.TurnStarted{
			TurnID: redacted, SessionID: "s", RequestID: "r", Question: events.Question{QuestionNeutral: "question"},
		})
		gone := w.append(w.live.DecideRedact(conversation.Redact{TurnID: redacted}).Facts[0])
		require.Equal(t, conversation.TurnGone, gone.Kind)
		about(f, redacted)
		c := w.append(f)
		require.Equal(t, conversation.Anomaly, c.Kind, f.Type())
		require.Equal(t, conversation.CodeTurnRedacted, c.Reason, f.Type())
		told++
	}
	require.GreaterOrEqual(t, told, 3)
}

// recorded returns the fact of a recorded envelope.
func recorded(t *testing.T, file string) events.Fact {
	t.Helper()
	raw := must.Get(os.ReadFile(file))(t)
	var env struct {
		Subject string
		Headers map[string][]string
		Body    json.RawMessage
	}
	require.NoError(t, json.Unmarshal(raw, &env))
	return events.Decode(events.Envelope{Subject: env.Subject, Header: env.Headers, Body: env.Body},
		events.Position{Seq: 1}, epoch).Fact
}

// about sets the ids of a fact to those of a redacted turn of session s, whose request was r.
func about(f events.Fact, redacted uuid.UUID) {
	v := reflect.ValueOf(f).Elem()
	set := func(name string, to any) bool {
		field := v.FieldByName(name)
		if field.IsValid() {
			field.Set(reflect.ValueOf(to))
		}
		return field.IsValid()
	}
	set("SessionID", "s")
	if set("ReplacesTurnID", redacted) {
		set("TurnID", events.TurnID("s", "later"))
		set("RequestID", "later")
		return
	}
	set("TurnID", redacted)
	set("RequestID", "r")
}

func TestKindsHaveNames(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for k := conversation.Seen; k <= conversation.Erased; k++ { // add a new last kind here
		require.NotEmpty(t, k.String())
		require.False(t, names[k.String()], "%s names two kinds", k)
		names[k.String()] = true
	}
}
