package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
)

// link makes sure that a session has an identity before its first turn, if sessions get one.
func (t *turnledger) link(ctx context.Context, session string) error {
	if t.linked == nil {
		return nil
	}
	if _, linked := t.linked.LoadOrStore(session, true); linked {
		return nil
	}
	_, err := t.send(ctx, http.MethodPut, "/v1/sessions/"+session+"/identity", encoded(map[string]any{
		"identity_id": session,
	}))
	return err
}

// text is a text of an anonymous session as it is, and one of 2,000 words, as long, for a session with an identity:
// the tables hold the words of those.
func (t *turnledger) text(s string) string {
	if t.linked == nil {
		return s
	}
	out := make([]byte, 0, len(s)+len("word-0000"))
	for len(out) < len(s) {
		out = strconv.AppendInt(append(out, "word"...), rand.Int64N(2000), 10)
		out = append(out, ' ')
	}
	return string(out[:len(s)])
}
