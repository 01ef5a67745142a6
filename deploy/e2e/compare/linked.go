package main

import (
	"context"
	"net/http"
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
