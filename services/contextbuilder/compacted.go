package contextbuilder

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
)

// compacted returns turns with the texts that compactions stand for in their places. No model is shown a compaction.
func compacted(
	ctx context.Context, turns []*session.Turn, req services.ContextRequest,
) (out []*session.Turn, err error) {
	for n, t := range turns {
		q, a := t.Question, t.Answer
		if q != nil && hasCompaction(q.QuestionMessages) {
			other := *q
			other.QuestionMessages, err = uncompacted(ctx, q.QuestionMessages, req)
			q = &other
		}
		if a != nil && err == nil && hasCompaction(a.AnswerMessages) {
			other := *a
			other.AnswerMessages, err = uncompacted(ctx, a.AnswerMessages, req)
			a = &other
		}
		if err != nil {
			return nil, err
		}
		if q == t.Question && a == t.Answer {
			continue
		}
		if out == nil {
			out = append(out, turns...)
		}
		other := *t
		other.Question, other.Answer = q, a
		out[n] = &other
	}
	if out == nil {
		out = turns
	}
	return out, nil
}

func hasCompaction(messages json.RawMessage) bool {
	return bytes.Contains(messages, []byte(`"compaction"`))
}

func uncompacted(ctx context.Context, list json.RawMessage, req services.ContextRequest) (json.RawMessage, error) {
	var all []json.RawMessage
	_ = json.Unmarshal(list, &all) // the log checked it
	all, err := uncompactedAll(ctx, all, req)
	if err != nil {
		return nil, err
	}
	raw, err := events.JSON(all)
	return raw, err
}

// uncompactedAll returns messages with the texts that compactions stand for in their places, as a system's.
func uncompactedAll(
	ctx context.Context, all []json.RawMessage, req services.ContextRequest,
) (out []json.RawMessage, err error) {
	for _, raw := range all {
		var items []message.Item
		if hasCompaction(raw) {
			items = message.Items(raw)
		}
		if len(items) != 1 || !items[0].IsCompaction() {
			out = append(out, raw)
			continue
		}
		text := ""
		if req.Compacted != nil {
			if text, err = req.Compacted(ctx, items[0]); err != nil {
				return nil, err
			}
		}
		if text != "" {
			out = append(out, message.New(message.System, summaryBegins+text).JSON())
		}
	}
	return out, nil
}
