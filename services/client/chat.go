package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
)

// ErrNotRunning says that no answer is being made there (any more).
var ErrNotRunning = errors.New("no answer is being made")

// ChatMessage is what a user says in a thread. Without a ThreadID a new one is made; a RequestID is drawn if it is
// empty.
type ChatMessage struct {
	ThreadID  string `json:"-"`
	RequestID string `json:"request_id"`
	UserID    string `json:"user_id,omitempty"`
	Content   string `json:"content"`
	OnPending string `json:"on_pending,omitempty"`
}

// AnswerEvent is what is new of an answer: the thread and the turn at its beginning, then texts, and Done at its end.
// Number is that of the event, behind which Attach goes on.
type AnswerEvent struct {
	Number           int
	ThreadID, TurnID string
	Text             string
	// Anew: what was told before does not count, since the answer is another one now.
	Anew bool
	Done *ChatReply
}

// ChatReply is a whole answer.
type ChatReply struct {
	ThreadID     string `json:"thread_id"`
	TurnID       string `json:"turn_id"`
	Content      string `json:"content"`
	Status       string `json:"status"`
	FinishReason string `json:"finish_reason"`
	Position     string `json:"position"`
	Duplicate    bool   `json:"duplicate"`
}

// Chat sends a message, and returns its answer while it is made. If the connection breaks, it goes on where it broke.
// Leaving the loop leaves the answer, which is made all the same: Attach comes back to it, and Stop ends it.
func (c *Client) Chat(ctx context.Context, m ChatMessage) iter.Seq2[AnswerEvent, error] {
	if m.ThreadID == "" {
		m.ThreadID = uuid.NewString()
	}
	if m.RequestID == "" {
		m.RequestID = uuid.NewString()
	}
	return (&answering{client: c, thread: m.ThreadID, message: &m}).all(ctx)
}

// Attach returns the answer that is being made in a thread, from its beginning or behind the event of a number: that of
// a turn, or without one the first that runs. If none is, it fails with ErrNotRunning.
func (c *Client) Attach(ctx context.Context, threadID, turnID string, from int) iter.Seq2[AnswerEvent, error] {
	return (&answering{client: c, thread: threadID, turn: turnID, number: from}).all(ctx)
}

// Stop ends the answer of a turn, or without one that which is being made in a thread, with what is there. It returns
// the turn; "" if no answer was being made.
func (c *Client) Stop(ctx context.Context, threadID, turnID string) (string, error) {
	body := map[string]string{}
	if turnID != "" {
		body["turn_id"] = turnID
	}
	type stopped struct {
		TurnID string `json:"turn_id"`
	}
	r := request{"stop an answer", http.MethodPost, "/threads/" + escape(threadID) + "/stop", body, repeatable}
	out, err := call[stopped](ctx, c, r)
	return out.TurnID, err
}

// answering is one reading of an answer.
type answering struct {
	client  *Client
	thread  string
	message *ChatMessage

	turn   string
	number int
	// told is the text so far, and again how much of it comes again.
	told  strings.Builder
	again int
	begun bool
	over  bool
}

func (a *answering) all(ctx context.Context) iter.Seq2[AnswerEvent, error] {
	return func(yield func(AnswerEvent, error) bool) {
		wait, cfg := pauses(), a.client.cfg
		attached := a.message == nil
		for tries, since := uint(1), time.Now(); ; tries++ {
			before := a.number
			err := a.connection(ctx, attached, func(e AnswerEvent) bool { return yield(e, nil) })
			if a.over {
				return
			}
			if a.number != before {
				tries, since = 1, time.Now()
				wait.Reset()
			}
			switch {
			case errors.Is(err, ErrNotRunning) && a.message == nil:
				yield(AnswerEvent{}, attempted("attach to an answer", err))
				return
			case errors.Is(err, ErrNotRunning): // it has ended: the same message again is told the answer
				attached = false
			default:
				attached = a.message == nil || a.turn != ""
			}
			err = request{retry: repeatable}.classify(ctx, err)
			stop, final := errors.AsType[*backoff.PermanentError](err)
			switch {
			case ctx.Err() != nil:
				err = ctx.Err()
			case final:
				err = stop.Err
			case tries < cfg.Tries && time.Since(since) < cfg.Patience:
				pause.For(ctx, wait.NextBackOff())
				continue
			}
			yield(AnswerEvent{}, attempted("chat", err))
			return
		}
	}
}

// connection reads the events of one connection, and notes whether the reading is over.
func (a *answering) connection(ctx context.Context, attached bool, yield func(AnswerEvent) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(fmt.Errorf("%w: nothing came for too long", errBroken)) })
	defer quiet.Stop()
	resp, err := a.open(ctx, attached)
	if err != nil {
		return caused(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNoContent {
		return ErrNotRunning
	}
	lines := bufio.NewScanner(&audible{resp.Body, quiet})
	lines.Buffer(make([]byte, 64<<10), longestEvent)
	lines.Split(wholeLines)
	var number int
	var name string
	for lines.Scan() {
		line := lines.Bytes()
		switch field, value, _ := bytes.Cut(line, []byte(": ")); string(field) {
		case "id":
			number, _ = strconv.Atoi(string(value))
		case "event":
			name = string(value)
		case "data":
			if err := a.event(name, number, value, yield); err != nil || a.over {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return caused(ctx, err)
	}
	return errBroken
}

func (a *answering) open(ctx context.Context, attached bool) (*http.Response, error) {
	path := "/threads/" + escape(a.thread) + "/messages/stream"
	if attached {
		query := []string{"turn_id", a.turn, "from", number(a.number)}
		return a.client.open(ctx, http.MethodGet, withQuery(path, query...), nil, nil)
	}
	body, err := events.JSON(a.message)
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	a.again, a.number = a.told.Len(), 0
	return a.client.open(ctx, http.MethodPost, path, bytes.NewReader(body),
		http.Header{"Content-Type": {"application/json"}})
}

// event tells an event.
func (a *answering) event(name string, number int, data []byte, yield func(AnswerEvent) bool) error {
	e := AnswerEvent{Number: number}
	a.number = number
	switch name {
	case "begun":
		var begun struct {
			ThreadID string `json:"thread_id"`
			TurnID   string `json:"turn_id"`
		}
		if err := decode(data, &begun); err != nil {
			return backoff.Permanent(err)
		}
		a.thread, a.turn = begun.ThreadID, begun.TurnID
		if e.ThreadID, e.TurnID = a.thread, a.turn; a.begun {
			return nil // it was told before
		}
		a.begun = true
	case "delta":
		var delta struct{ Content string }
		if err := decode(data, &delta); err != nil {
			return backoff.Permanent(err)
		}
		if e.Text, e.Anew = a.fresh(delta.Content); e.Text == "" && !e.Anew {
			return nil
		}
	case "done":
		e.Done = &ChatReply{}
		if err := decode(data, e.Done); err != nil {
			return backoff.Permanent(err)
		}
		a.over = true
	case "error":
		problem := &Error{}
		_ = json.Unmarshal(data, problem) // what is none has no code
		return backoff.Permanent(problem)
	default:
		return nil // a newer server's
	}
	if !yield(e) {
		a.over = true
	}
	return nil
}

// fresh returns what is new of a text that may come again; anew: it is another one.
func (a *answering) fresh(text string) (fresh string, anew bool) {
	if a.again > 0 {
		all := a.told.String()
		was := all[len(all)-a.again:]
		n := min(len(was), len(text))
		if was[:n] != text[:n] {
			told := all[:len(all)-a.again]
			a.again = 0
			a.told.Reset()
			_, _ = a.told.WriteString(told + text)
			return told + text, true
		}
		a.again -= n
		text = text[n:]
	}
	_, _ = a.told.WriteString(text)
	return text, false
}
