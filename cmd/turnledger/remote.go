package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// remote is where a verb finds the running server.
type remote struct {
	URL string `help:"The running server." default:"http://127.0.0.1:8480" env:"TURNLEDGER_URL"`
	Key string `help:"Key for the server." env:"TURNLEDGER_KEY"`
}

type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }

func (r remote) recorder() (recorder, error) { return plainRecorder{r.URL}, nil }

type plainRecorder struct{ url string }

func (p plainRecorder) call(ctx context.Context, path string, body any) (map[string]any, error) {
	raw, _ := json.Marshal(body)
	req, err := http.NewRequestWithContext(ctx, "POST", p.url+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, &unreachableError{err}
	}
	defer resp.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return nil, &unreachableError{err}
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%v", out)
	}
	return out, nil
}

func (p plainRecorder) start(ctx context.Context, session string, t turnIn) (string, bool, error) {
	body := map[string]any{"request_id": t.requestID, "question_neutral": t.question.neutral}
	if t.question.translated != "" {
		body["question_translated"] = t.question.translated
	}
	if t.question.messages != nil {
		body["question_messages"] = t.question.messages
	}
	out, err := p.call(ctx, "/v1/sessions/"+url.PathEscape(session)+"/turns", body)
	if err != nil {
		return "", false, err
	}
	return out["turn_id"].(string), out["duplicate"] == true, nil
}

func (p plainRecorder) finalize(ctx context.Context, session, id string, t turnIn) (bool, error) {
	body := map[string]any{"answer_neutral": t.answer.neutral}
	if t.answer.translated != "" {
		body["answer_translated"] = t.answer.translated
	}
	if t.answer.messages != nil {
		body["answer_messages"] = t.answer.messages
	}
	out, err := p.call(ctx, "/v1/sessions/"+url.PathEscape(session)+"/turns/"+id+"/finalize", body)
	if err != nil {
		return false, err
	}
	return out["duplicate"] == true, nil
}

type contextCmd struct{}
type historyCmd struct{}
type linkCmd struct{}
type redactCmd struct{}
type projectionsCmd struct{}
