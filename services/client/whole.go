package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/turnledger/turnledger/events"
)

// Answer is what a whole turn brings beside its start; the forms are those of Finalize.
type Answer struct {
	AnswerNeutral              string            `json:"answer_neutral,omitempty"`
	AnswerTranslated           string            `json:"answer_translated,omitempty"`
	AnswerTranslatedIsFallback bool              `json:"answer_translated_is_fallback,omitempty"`
	AnswerMessages             []json.RawMessage `json:"answer_messages,omitempty"`
}

// WholeTurn is a turn with its answer (docs/contract.md#whole-turns). Without an answer the turn stays pending.
type WholeTurn struct {
	Start
	*Answer
}

// Recorded is what became of one turn among many. Err is nil, or an *Error: then the turn was not recorded, or, where
// its status is 503, it may have been.
type Recorded struct {
	// Status is what the single call would have answered: 201 for a turn that is new, 200 for one that stood.
	Status    int
	TurnID    string
	Position  string
	Duplicate bool
	// DroppedMetadata are the keys that are not on the allowlist and were not kept.
	DroppedMetadata []string
	Err             error
}

// RecordTurn records a turn and its answer in one call. A turn that was started before gets the answer, if it has none
// yet.
func (c *Client) RecordTurn(ctx context.Context, t WholeTurn) (Turn, error) {
	return c.writeTurn(ctx, "record turn", t.SessionID, "/turns", t, t.RequestID != "")
}

// Bounds of one request of RecordTurns, below those of docs/contract.md#many-turns-at-once.
const (
	turnsOfRequest = 500
	bytesOfRequest = 4 << 20
	// batchAttempts is how much longer than another call a request with many turns may take.
	batchAttempts = 3
)

// RecordTurns records many turns, those of one session in their order, and returns what became of each. A turn whose
// refusal may pass is sent again; if it does not pass in the client's patience, the later turns of its session are
// refused, too. If a request gets no answer, RecordTurns fails, and each turn that has no answer
// has that error too. Sending turns again is harmless.
func (c *Client) RecordTurns(ctx context.Context, turns []WholeTurn) ([]Recorded, error) {
	return c.recordTurns(ctx, turns, http.Header{"Content-Type": {"application/x-ndjson"}})
}

// RecordNewTurns is RecordTurns for turns that nobody has started. A turn that exists, even without an answer, is left
// as it is and answered as a duplicate.
func (c *Client) RecordNewTurns(ctx context.Context, turns []WholeTurn) ([]Recorded, error) {
	header := http.Header{"Content-Type": {"application/x-ndjson"}, "If-None-Match": {"*"}}
	return c.recordTurns(ctx, turns, header)
}

func (c *Client) recordTurns(ctx context.Context, turns []WholeTurn, header http.Header) ([]Recorded, error) {
	out := make([]Recorded, len(turns))
	var lines []*turnLine
	for i, t := range turns {
		text, err := events.JSON(struct {
			SessionID string `json:"session_id"`
			WholeTurn
		}{t.SessionID, t})
		if err != nil {
			return nil, attempted("record turns", err)
		}
		lines = append(lines, &turnLine{session: t.SessionID, text: append(text, '\n'), out: &out[i]})
	}
	for len(lines) > 0 {
		n := linesOfRequest(lines)
		left, err := c.recordLines(ctx, lines[:n], header)
		if err != nil {
			err = attempted("record turns", err)
			for _, l := range lines {
				if l.out.Status == 0 {
					l.out.Err = err
				}
			}
			return out, err
		}
		lines = behindNone(left, lines[n:])
	}
	return out, nil
}

// behindNone refuses the lines of sessions of which lines are left as those are, and returns the others: no turn of a
// session may come before an earlier one.
func behindNone(left, lines []*turnLine) []*turnLine {
	refused := map[string]*Recorded{}
	for _, l := range left {
		refused[l.session] = l.out
	}
	return slices.DeleteFunc(lines, func(l *turnLine) bool {
		why := refused[l.session]
		if why != nil {
			l.out.Status, l.out.Err = why.Status, why.Err
		}
		return why != nil
	})
}

// turnLine is one turn of RecordTurns on its way.
type turnLine struct {
	session string
	text    []byte
	out     *Recorded
}

// linesOfRequest returns how many of the lines one request takes.
func linesOfRequest(lines []*turnLine) int {
	size := 0
	for i, l := range lines {
		if size += len(l.text); i > 0 && (i == turnsOfRequest || size > bytesOfRequest) {
			return i
		}
	}
	return len(lines)
}

// recordLines sends lines until each has its answer, and returns those that were refused for the moment at the end of
// the client's patience. It does not go on to other lines meanwhile, so that the order of a session's turns holds.
func (c *Client) recordLines(
	ctx context.Context, lines []*turnLine, header http.Header,
) (left []*turnLine, err error) {
	r := request{"record turns", http.MethodPost, "/turns", nil, true}
	left = lines
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		err := c.sendLines(ctx, r, left, header)
		if err != nil {
			return struct{}{}, r.classify(ctx, err)
		}
		waits := time.Duration(0)
		left = slices.DeleteFunc(slices.Clone(left), func(l *turnLine) bool {
			p, _ := errors.AsType[*Error](l.out.Err)
			if p != nil && p.passing() {
				waits = max(waits, p.retryAfter)
				return false
			}
			return true
		})
		if len(left) == 0 {
			return struct{}{}, nil
		}
		if waits > 0 {
			return struct{}{}, &patience{errLinesLeft, backoff.RetryAfterError{Duration: waits}}
		}
		return struct{}{}, errLinesLeft
	}, backoff.WithBackOff(pauses()), backoff.WithMaxTries(c.cfg.Tries), backoff.WithMaxElapsedTime(c.cfg.Patience))
	if errors.Is(err, errLinesLeft) {
		return left, nil // each has its own error
	}
	return nil, err
}

var errLinesLeft = errors.New("some turns are refused for the moment")

// sendLines sends lines once, and gives each its answer.
func (c *Client) sendLines(ctx context.Context, r request, lines []*turnLine, header http.Header) error {
	ctx, cancel := context.WithTimeout(ctx, batchAttempts*c.cfg.Attempt)
	defer cancel()
	var body bytes.Buffer
	for _, l := range lines {
		body.Write(l.text)
	}
	resp, err := c.open(ctx, r.method, r.path, bytes.NewReader(body.Bytes()), header)
	if err != nil {
		return err
	}
	answer, err := c.readAll(resp)
	if err != nil {
		return err
	}
	rows := json.NewDecoder(bytes.NewReader(answer))
	for _, l := range lines {
		var row lineAnswer
		if err := rows.Decode(&row); err != nil {
			return fmt.Errorf("%w: %w", ErrAnswer, err)
		}
		*l.out = row.recorded()
		c.saw(l.session, row.Position)
	}
	return nil
}

// lineAnswer is a line of an answer.
type lineAnswer struct {
	HTTPStatus      int      `json:"http_status"`
	TurnID          string   `json:"turn_id"`
	Position        string   `json:"position"`
	Duplicate       bool     `json:"duplicate"`
	DroppedMetadata []string `json:"dropped_metadata"`
	Code            string   `json:"code"`
	Detail          string   `json:"detail"`
	RetryAfter      int      `json:"retry_after"`
}

func (a *lineAnswer) recorded() Recorded {
	out := Recorded{
		Status: a.HTTPStatus, TurnID: a.TurnID, Position: a.Position, Duplicate: a.Duplicate,
		DroppedMetadata: a.DroppedMetadata,
	}
	if a.Code != "" {
		out.Err = &Error{
			Status: a.HTTPStatus, Code: a.Code, Detail: a.Detail,
			retryAfter: time.Duration(a.RetryAfter) * time.Second,
		}
	}
	return out
}
