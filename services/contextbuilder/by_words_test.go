package contextbuilder_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/read"
)

// wordsOnly is a memory whose index does not answer.
type wordsOnly services.MemorySnippet

func (m wordsOnly) Snippet(context.Context, services.MemoryQuery) (services.MemorySnippet, error) {
	m.Text = "She likes lists."
	return services.MemorySnippet(m), nil
}

// A prompt whose memory went without the index of meanings says so, and has what the words have found.
func TestAMemoryByWordsIsSaid(t *testing.T) {
	t.Parallel()
	reader := read.New(natstest.Log(t, 1), read.Config{Rules: rules})
	for byWords, want := range map[wordsOnly][]string{
		{}: nil, {ByWords: true}: {"memory: by words only, since the index of meanings does not answer"},
		{ByWords: true, OtherModel: true}: {
			"memory: by words only, since another model of embeddings, or other dimensions, has filled the index: " +
				"rebuild it with turnledger projections rebuild index",
		},
	} {
		got := must.Get(contextbuilder.NewBuilder(reader, contextbuilder.Config{Memory: byWords}).Build(t.Context(),
			services.ContextRequest{SessionID: "s", Message: "now", Memory: true, IdentityID: "ada"}))(t)
		require.Equal(t, "She likes lists.", got.MemorySnippet)
		require.Equal(t, want, got.Warnings)
	}
}
