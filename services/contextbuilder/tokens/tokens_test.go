package tokens_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services/contextbuilder/tokens"
)

func TestCountsAreThoseOfTheModelsTokenizer(t *testing.T) {
	t.Parallel()
	// What OpenAI's own tiktoken gives.
	for model, want := range map[string]int{"gpt-4o": 6, "openai/gpt-4o-mini": 6, "gpt-5": 6, "gpt-4": 6} {
		c := must.Get(tokens.ForModel(model))(t)
		require.NotNil(t, c, model)
		for range 2 { // the second time from the cache
			require.Equal(t, want, c.Count("tiktoken is great!"), model)
		}
	}
	require.Nil(t, must.Get(tokens.ForModel("llama-3"))(t), "the encoding of this one is unknown")
}

// The time for one word grows with the square of its length; nobody may hold the
// server up with a text that has no spaces.
func TestALongWordIsCountedInTime(t *testing.T) {
	t.Parallel()
	c := must.Get(tokens.ForModel("gpt-4o"))(t)
	for name, word := range map[string]string{"letters": "x", "letters beyond ASCII": "ż", "spaces": " ",
		"punctuation": "-", "digits": "7", "emoji": "🙂"} {
		began := time.Now()
		n := c.Count(strings.Repeat(word, 50_000/len(word)))
		require.Less(t, time.Since(began), hang.Limit, name)
		require.Greater(t, n, 100, name)
	}
}

// A text that is counted in parts has about as many tokens as in one piece.
func TestALongTextIsCountedInParts(t *testing.T) {
	t.Parallel()
	c := must.Get(tokens.ForModel("gpt-4o"))(t)
	one := c.Count("The quick brown fox jumps over the lazy dog. ")
	require.InEpsilon(t, one*1000, c.Count(strings.Repeat("The quick brown fox jumps over the lazy dog. ", 1000)), 0.11)
}
