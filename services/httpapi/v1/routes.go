package v1

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/turnledger/turnledger/services/access"
)

const (
	onSession = "/sessions/{session_id}"
	onTurn    = onSession + "/turns/{turn_id}"
)

// Statuses of errors, for the documentation.
const (
	notFound = http.StatusNotFound
	conflict = http.StatusConflict
	gone     = http.StatusGone
	unread   = http.StatusBadRequest
	tooBig   = http.StatusRequestEntityTooLarge
	tooMany  = http.StatusTooManyRequests
)

// roleEraser is the role of the processes that answer for retention.
const roleEraser = "eraser"

// declare adds all calls that this process answers, and notes for the others which role answers them.
func (a *surface) declare() {
	cfg := &a.cfg
	a.ofRole("api", cfg.Turns != nil, a.writes)
	a.ofRole("api", cfg.Erasures != nil, a.erasures)
	if cfg.Receipts != nil {
		a.receipts()
	}
	a.ofRole(roleEraser, cfg.Retention != nil, a.retains)
	a.ofRole("context", cfg.Sessions != nil, a.reads)
	a.ofRole("context", cfg.Sessions != nil, a.across)
	a.ofRole("chat", cfg.Chat != nil, a.chats)
	a.ofRole("chat", cfg.Running != nil, a.runs)
	a.ofRole("chat", cfg.Responses != nil && cfg.Sessions != nil, a.uiChats)
	a.ofRole("context", cfg.Events != nil, a.streams)
	if cfg.Explain != nil {
		a.explains()
	}
	a.ofRole("context", cfg.Events != nil && cfg.Sessions != nil, a.durables)
	if cfg.WhatIfs != nil {
		a.whatIfs()
	}
	if cfg.People != nil {
		a.people()
	}
	call(a, a.projections, op("list-projections", access.Admin, "GET /projections", "See how far the views are"))
	call(a, a.keys, op("list-keys", access.Admin, "GET /keys", "List the API keys, without their secrets"))
	if cfg.Tokens != nil {
		a.tokens()
	}
	a.operates()
	if cfg.Keeper != nil {
		a.keeping()
	}
	if cfg.Streams != nil {
		a.keepsStreams()
	}
	if cfg.Backups != nil {
		a.backs()
	}
}

// writes adds the calls that record.
func (a *surface) writes() {
	start := op("start-turn", access.TurnsWrite, "POST "+onSession+"/turns",
		"Record a question", unread, conflict, gone, tooBig, tooMany).beginsSessions()
	start.DefaultStatus = http.StatusCreated
	start.Responses = map[string]*huma.Response{
		"200": {Description: "The log had it already", Content: contentOf[turnJSON](a, "application/json")},
	}
	call(a, a.startTurn, start)
	a.batches()
	call(a, a.finalizeTurn, op("finalize-turn", access.TurnsWrite, "POST "+onTurn+"/finalize",
		"Record the answer of a turn", unread, notFound, conflict, gone, tooBig))
	call(a, a.linkSession, op("link-session", access.TurnsWrite, "PUT "+onSession+"/identity",
		"Link a session to an identity", unread, conflict, gone))
	call(a, a.redactTurn, op("redact-turn", access.TurnsRedact, "POST "+onTurn+"/redact",
		"Make a turn, with all its versions, a tombstone", unread, notFound, gone))
	call(a, a.correctTurn, op("correct-turn", access.TurnsWrite, "POST "+onTurn+"/correct",
		"Replace a turn", unread, notFound, conflict, gone, tooBig))
	call(a, a.describeSession, op("describe-session", access.TurnsWrite, "PATCH "+onSession,
		"Change a session's title and metadata", unread, gone, tooBig))
	fork := op("fork-session", access.TurnsWrite|access.ContextRead, "POST "+onSession+"/fork",
		"Begin a session with the turns of another, which it shares", unread, notFound, conflict, gone)
	fork.DefaultStatus = http.StatusCreated
	fork.Responses = map[string]*huma.Response{
		"200": {Description: "The log had it already", Content: contentOf[sessionJSON](a, "application/json")},
	}
	call(a, a.forkSession, fork)
	a.summaries()
	call(a, a.resetSession, op("reset-session", access.TurnsWrite, "POST "+onSession+"/reset",
		"Let prompts and history start anew", unread, gone))
}

// chats adds the calls that ask a model.
func (a *surface) chats() {
	chat := func(id, path, summary string) operation {
		// An answer of the model may repeat the history, so both scopes are needed.
		return op(id, access.TurnsWrite|access.ContextRead, "POST "+path, summary,
			unread, conflict, gone, tooBig, tooMany, http.StatusBadGateway).takesLong().within(chatDeadline).
			admitsItself()
	}
	const (
		onThread = "/threads/{thread_id}/messages"
		streamed = "The same as server-sent events: begun, delta, done or error"
	)
	call(a, func(ctx context.Context, in *threadIn) (chatJSON, error) {
		return a.send(ctx, (*chatIn)(in))
	}, chat("send-message", onThread, "Ask the model in a thread"))
	raw[chatJSON](a, func(w http.ResponseWriter, r *http.Request, in *threadIn) error {
		return a.stream(w, r, (*chatIn)(in))
	}, chat("stream-message", onThread+"/stream", streamed))
	call(a, a.send, chat("chat", "/chat", "Ask the model; the thread stands in the body or the header"))
	raw[chatJSON](a, a.stream, chat("stream-chat", "/chat/stream", streamed))
}

// reads adds the calls that only read.
func (a *surface) reads() {
	get := func(id, path, summary string) operation { return op(id, access.ContextRead, "GET "+path, summary) }
	call(a, a.session, get("get-session", onSession, "Look at a session"))
	call(a, a.listTurns, get("list-turns", onSession+"/turns", "List a session's turns"))
	call(a, a.listSummaries, get("list-summaries", onSession+"/summaries", "List a session's valid summaries"))
	call(a, a.history, get("get-history", onSession+"/history", "Get the question and answer pairs for a prompt"))
	raw[contextJSON](a, a.buildContext, op("build-context", access.ContextRead, "POST "+onSession+"/context",
		"Get the messages to send to a model", unread, tooBig, tooMany).within(a.cfg.Deadline))
	call(a, a.identityTurns, get("list-identity-turns", "/identities/{identity_id}/turns",
		"List an identity's turns across its sessions, the newest page first, each page newest last"))
}

// keeping adds the calls that rebuild and verify views.
func (a *surface) keeping() {
	const onView = "/projections/{name}"
	call(a, a.rebuild, op("rebuild-projection", access.Admin, "POST "+onView+"/rebuild",
		"Fill a view anew from the log, beside the one that is served", notFound, conflict).accepted())
	call(a, a.cancelRebuild, op("cancel-rebuild", access.Admin, "DELETE "+onView+"/rebuild",
		"Break off the rebuild of a view that runs in this process; the view is served as it was", notFound).accepted())
	verify := op("verify-projection", access.Admin, "POST "+onView+"/verify",
		"Compare a view with the log: a line of JSON for each step, the last one with result or problem",
		notFound, conflict)
	verify.Responses = map[string]*huma.Response{"200": {Content: contentOf[verifyLine](a, "application/x-ndjson")}}
	raw[anyAnswer](a, a.verify, verify.takesLong())
}
