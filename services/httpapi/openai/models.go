package openai

import (
	"context"
	"net/http"
	"slices"
)

// modelJSON is a model that answers.
type modelJSON struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func (s *surface) model(name string) modelJSON {
	return modelJSON{name, "model", s.began.Unix(), "turnledger"}
}

func (s *surface) listModels(context.Context, *http.Request, http.Header) (any, error) {
	out := []modelJSON{}
	for _, name := range s.cfg.Models {
		out = append(out, s.model(name))
	}
	return map[string]any{"object": "list", "data": out}, nil
}

func (s *surface) getModel(_ context.Context, r *http.Request, _ http.Header) (any, error) {
	name := r.PathValue("model")
	if !slices.Contains(s.cfg.Models, name) {
		return nil, missing("model", "model_not_found", "There is no such model.")
	}
	return s.model(name), nil
}
