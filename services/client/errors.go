package client

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
)

var (
	// ErrURL says that the server's URL is malformed.
	ErrURL = errors.New("want a URL such as http://127.0.0.1:8480")
	// ErrAnswerTooLarge says that an answer is larger than Config.MaxAnswer.
	ErrAnswerTooLarge = errors.New("the answer is larger than this client takes: ask for less at once")
	// ErrAnswer says that the server that answered is not Turnledger.
	ErrAnswer = errors.New("not an answer of Turnledger: check the URL")
)

// Error is a problem that the server returned. Programs should decide by Code, which is stable.
type Error struct {
	Status int     `json:"status"`
	Code   string  `json:"code"`
	Title  string  `json:"title"`
	Detail string  `json:"detail"`
	Fields []Field `json:"errors"`
	// Current is the turn's current version, if Code is turn_replaced.
	Current *Version `json:"current"`
	// Origin is where the turn is written to, if Code is turn_inherited.
	Origin *Origin `json:"origin"`

	retryAfter time.Duration
}

// Version names a version of a turn.
type Version struct {
	TurnID        string `json:"turn_id"`
	RecordVersion int    `json:"record_version"`
}

// Origin names a turn in the session that it stands in.
type Origin struct {
	SessionID string `json:"session_id"`
	TurnID    string `json:"turn_id"`
}

// Field is a faulty part of a request.
type Field struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

func (e *Error) Error() string {
	if e.Code == "" {
		return "HTTP status " + strconv.Itoa(e.Status)
	}
	if o := e.Origin; o != nil {
		return e.Code + ": " + e.Detail + " (session " + o.SessionID + ", turn " + o.TurnID + ")"
	}
	return e.Code + ": " + e.Detail
}

// Is matches errors by code: errors.Is(err, &client.Error{Code: "turn_redacted"}).
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

// problemIn reads the problem in a response. If there is none, the error has only the status.
func problemIn(r *http.Response, body []byte) *Error {
	e := &Error{}
	if json.Unmarshal(body, e) != nil || e.Code == "" {
		e = &Error{}
	}
	e.Status, e.retryAfter = r.StatusCode, retryAfter(r.Header.Get("Retry-After"))
	return e
}

// retryAfter reads a header with seconds or a date; 0 if there is none.
func retryAfter(s string) time.Duration {
	if n, err := strconv.Atoi(s); err == nil && n >= 0 {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(time.Until(t), 0)
	}
	return 0
}

// passing reports whether the same request may succeed if it is sent again soon.
func (e *Error) passing() bool {
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return e.Code != "audit_unavailable" && e.Code != "model_failed"
	default:
		return false
	}
}
