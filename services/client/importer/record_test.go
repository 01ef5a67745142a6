package importer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/client/importer"
)

// What is new behind a turn that stands comes whole, in one call: no end of the import leaves a question without its
// answer. The store of these tests finalizes no turn.
func TestATurnBehindOneThatStandsComesWhole(t *testing.T) {
	t.Parallel()
	said := func(role, text string) map[string]any { return map[string]any{"role": role, "content": text} }
	messages := []any{said("user", "first"), said("assistant", "one")}
	s := newStore()
	importLines(t, s, map[string]any{"conversation_id": "c", "messages": messages})
	for n := range 3 {
		messages = append(messages, said("user", fmt.Sprint("question ", n)),
			said("assistant", fmt.Sprint("answer ", n)))
	}
	done := importLines(t, s, map[string]any{"conversation_id": "c", "messages": messages})
	require.EqualValues(t, 3, done.Recorded)
	require.EqualValues(t, 1, done.Existed)
	require.Len(t, s.turns["c"], 4)
	for _, turn := range s.turns["c"] {
		require.NotNil(t, turn.Answer)
	}
}

// A turn that is too large for one line of a request has a call for each half.
func TestATurnTooLargeForALineComesInHalves(t *testing.T) {
	t.Parallel()
	s := &halves{store: newStore()}
	importLines(t, s, map[string]any{"conversation_id": "c", "messages": []any{
		map[string]any{"role": "user", "content": strings.Repeat("large ", 100_000)},
		map[string]any{"role": "assistant", "content": strings.Repeat("larger ", 100_000)},
	}})
	require.Equal(t, []string{"start", "finalize"}, s.calls)
}

// halves is a store that refuses whole turns for their size.
type halves struct {
	*store
	calls []string
}

func (h *halves) RecordNewTurns(context.Context, []client.WholeTurn) ([]client.Recorded, error) {
	return []client.Recorded{{Status: 413, Err: &client.Error{Status: 413, Code: "body_too_large"}}}, nil
}

func (h *halves) StartTurn(_ context.Context, s client.Start) (client.Turn, error) {
	h.calls = append(h.calls, "start")
	return client.Turn{Status: "pending", QuestionMessages: s.QuestionMessages}, nil
}

func (h *halves) FinalizeTurn(_ context.Context, f client.Finalize) (client.Turn, error) {
	h.calls = append(h.calls, "finalize")
	return client.Turn{Status: "finalized", AnswerMessages: f.AnswerMessages}, nil
}

// importLines imports one line.
func importLines(t *testing.T, s importer.Store, line any) importer.Summary {
	t.Helper()
	var failed error
	done := must.Get(importer.Import(context.Background(), []string{written(t, "lines.jsonl", line)}, importer.Config{
		First: s, Later: s, Parallel: 1,
		Explain: func(_ context.Context, err error) error { return err },
		Passed:  func(int64) {},
		Failed:  func(_ string, err error) { failed = errors.Join(failed, err) },
	}))(t)
	require.NoError(t, failed)
	return done
}
