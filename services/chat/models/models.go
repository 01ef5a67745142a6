// Package models chooses the client for the configured chat model.
package models

import (
	"net/url"

	"github.com/turnledger/turnledger/services/chat"
	"github.com/turnledger/turnledger/services/chat/anthropic"
	"github.com/turnledger/turnledger/services/chat/endpoint"
	"github.com/turnledger/turnledger/services/chat/openai"
)

// New returns the model at an endpoint that speaks an API: openai, anthropic, or auto, which chooses by the address.
// Without an address it returns the echo model.
func New(api string, at endpoint.Config) chat.Model {
	u, err := url.Parse(at.URL)
	switch {
	case at.URL == "":
		return chat.Echo{}
	case api == "anthropic" || api == "auto" && err == nil && u.Hostname() == "api.anthropic.com":
		return anthropic.New(at)
	default:
		return openai.New(at)
	}
}
