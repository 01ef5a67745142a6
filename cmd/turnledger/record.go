package main

import (
	"context"
	"net/http"
)

// remoteRecorder records turns on a running server.
type remoteRecorder struct{ remote }

func (r remoteRecorder) start(ctx context.Context, session string, t turnIn) (string, bool, error) {
	body := t.question.body("question")
	body["request_id"] = t.requestID
	var out struct {
		TurnID    string `json:"turn_id"`
		Duplicate bool   `json:"duplicate"`
	}
	_, err := r.call(ctx, http.MethodPost, sessionPath(session)+"/turns", body, &out)
	return out.TurnID, out.Duplicate, err
}

func (r remoteRecorder) finalize(ctx context.Context, session, turnID string, t turnIn) (bool, error) {
	var out struct {
		Duplicate bool `json:"duplicate"`
	}
	_, err := r.call(ctx, http.MethodPost, sessionPath(session)+"/turns/"+turnID+"/finalize", t.answer.body("answer"), &out)
	return out.Duplicate, err
}

// body gives a half as the API takes it, under names that begin with what it is.
func (h halfIn) body(what string) map[string]any {
	body := map[string]any{what + "_neutral": h.neutral}
	if h.translated != "" {
		body[what+"_translated"] = h.translated
	}
	if h.messages != nil {
		body[what+"_messages"] = h.messages
	}
	return body
}
