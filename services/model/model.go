// Package model chooses the client of a model. It and the packages below it are all that calls endpoints of models:
// whoever wants an answer takes a services.Model.
package model

import (
	"net/url"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/model/anthropic"
	"github.com/turnledger/turnledger/services/model/endpoint"
	"github.com/turnledger/turnledger/services/model/openai"
	"github.com/turnledger/turnledger/services/model/responses"
)

// Names of the APIs that an endpoint may speak. Auto chooses Chat or Anthropic by the address, and OpenAI is Chat.
const (
	Auto      = "auto"
	Chat      = "chat"
	OpenAI    = "openai"
	Anthropic = "anthropic"
	Responses = "responses"
)

// New returns the model at an endpoint that speaks an API; it does no I/O.
func New(api string, at endpoint.Config) services.Model {
	switch {
	case speaksAnthropic(api, at.URL):
		return anthropic.New(at)
	case api == Responses:
		return responses.New(at)
	default:
		return openai.New(at)
	}
}

func speaksAnthropic(api, address string) bool {
	u, err := url.Parse(address)
	return api == Anthropic || api == Auto && err == nil && u.Hostname() == "api.anthropic.com"
}

// Provider returns the provider of a model as OpenTelemetry's conventions name it. An OpenAI-compatible endpoint counts
// as OpenAI's, as they say.
func Provider(api, address string) string {
	switch {
	case address == "":
		return "turnledger"
	case speaksAnthropic(api, address):
		return "anthropic"
	default:
		return "openai"
	}
}
