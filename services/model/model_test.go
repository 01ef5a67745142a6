package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/model"
	"github.com/turnledger/turnledger/services/model/endpoint"
)

func TestTheClientGoesByTheAPIAndTheAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		api, url string
		name     string
		format   services.Format
	}{
		"Anthropic's address":        {"auto", "https://api.anthropic.com/v1", "m", services.Anthropic},
		"another address":            {"auto", "https://api.openai.com/v1", "m", services.OpenAI},
		"an API at another address":  {"anthropic", "http://localhost:8000/v1", "m", services.Anthropic},
		"responses":                  {"responses", "https://api.openai.com/v1", "m", services.OpenAI},
		"another API than addressed": {"openai", "https://api.anthropic.com/v1", "m", services.OpenAI},
	} {
		m := model.New(c.api, endpoint.Config{URL: c.url, Name: "m"})
		require.Equal(t, c.name, m.Name(), name)
		require.Equal(t, c.format, m.Format(), name)
	}
}

func TestProvidersHaveTheNamesOfTheConventions(t *testing.T) {
	t.Parallel()
	for want, of := range map[string][2]string{
		"turnledger": {"auto", ""}, "openai": {"responses", "http://localhost/v1"},
		"anthropic": {"auto", "https://api.anthropic.com"},
	} {
		require.Equal(t, want, model.Provider(of[0], of[1]))
	}
}
