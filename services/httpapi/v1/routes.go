package v1

import (
	"net/http"
	"reflect"

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

// declare adds all calls that this process answers, and names the roles that answer the others.
func (a *surface) declare() {
	cfg := &a.cfg
	a.ofRole("api", cfg.Turns != nil, a.writes)
	a.ofRole("api", cfg.Erasures != nil, a.erasures)
	if cfg.Receipts != nil {
		a.receipts()
	}
	a.ofRole("eraser", cfg.Retention != nil, a.retains)
	a.ofRole("context", cfg.Sessions != nil, a.reads)
	a.ofRole("chat", cfg.Chat != nil, a.chats)
	a.ofRole("context", cfg.Events != nil, a.streams)
	call(a, operation(
		"list-projections", access.Admin, http.MethodGet, "/projections", "See how far the views are",
	), a.projections)
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

// long marks a call that may take long.
func long(op huma.Operation) huma.Operation { return with(op, metaLong, chatDeadline) }

// writes adds the calls that record.
func (a *surface) writes() {
	start := operation(
		"start-turn", access.TurnsWrite, http.MethodPost, onSession+"/turns", "Record a question",
		unread, conflict, gone, tooBig, tooMany,
	)
	start.DefaultStatus = http.StatusCreated
	call(a, start, a.startTurn)
	call(a, operation(
		"finalize-turn", access.TurnsWrite, http.MethodPost, onTurn+"/finalize", "Record the answer of a turn",
		unread, notFound, conflict, gone, tooBig,
	), a.finalizeTurn)
	call(a, operation(
		"link-session", access.TurnsWrite, http.MethodPut, onSession+"/identity", "Link a session to an identity",
		unread, conflict, gone,
	), a.linkSession)
	call(a, with(operation(
		"redact-turn", access.TurnsRedact, http.MethodPost, onTurn+"/redact",
		"Make a turn, with all its versions, a tombstone", unread, notFound, gone,
	), metaOptional, true), a.redactTurn)
	call(a, operation(
		"correct-turn", access.TurnsWrite, http.MethodPost, onTurn+"/correct", "Replace a turn",
		unread, notFound, conflict, gone, tooBig,
	), a.correctTurn)
	call(a, with(operation(
		"reset-session", access.TurnsWrite, http.MethodPost, onSession+"/reset", "Let prompts and history start anew",
		unread, gone,
	), metaOptional, true), a.resetSession)
}

// chats adds the calls that ask a model.
func (a *surface) chats() {
	chat := func(id, path, summary string) huma.Operation {
		// A model tells what it was shown.
		op := operation(
			id, access.TurnsWrite|access.ContextRead, http.MethodPost, path, summary,
			unread, conflict, gone, tooBig, tooMany, http.StatusBadGateway,
		)
		return with(long(op), metaBounds, true)
	}
	stream := func(id, path string) huma.Operation {
		op := chat(id, path, "The same as server-sent events: begun, delta, done or error")
		return with(op, metaAnswer, reflect.TypeFor[chatJSON]())
	}
	const onThread = "/threads/{thread_id}/messages"
	callWithin(a, chatDeadline, chat("send-message", onThread, "Ask the model in a thread"), a.thread)
	raw(a, stream("stream-message", onThread+"/stream"), a.threadStream)
	callWithin(
		a, chatDeadline, chat("chat", "/chat", "Ask the model; the thread stands in the body or the header"), a.chat,
	)
	raw(a, stream("stream-chat", "/chat/stream"), a.chatStream)
}

// reads adds the calls that only read.
func (a *surface) reads() {
	get := func(id, path, summary string) huma.Operation {
		return operation(id, access.ContextRead, http.MethodGet, path, summary)
	}
	call(a, get("get-session", onSession, "Look at a session"), a.session)
	call(a, get("list-turns", onSession+"/turns", "List a session's turns"), a.listTurns)
	call(a, get("get-history", onSession+"/history", "Get the question and answer pairs for a prompt"), a.history)
	raw(a, with(operation(
		"build-context", access.ContextRead, http.MethodPost, onSession+"/context",
		"Get the messages to send to a model", unread, tooBig, tooMany,
	), metaAnswer, reflect.TypeFor[contextJSON]()), a.buildContext)
	call(a, get(
		"list-identity-turns", "/identities/{identity_id}/turns",
		"List an identity's turns across its sessions, the newest page first, each page newest last",
	), a.identityTurns)
}

// keeping adds the calls that look after the views.
func (a *surface) keeping() {
	const onView = "/projections/{name}"
	accepted := func(op huma.Operation) huma.Operation {
		op.DefaultStatus = http.StatusAccepted
		return op
	}
	call(a, accepted(operation(
		"rebuild-projection", access.Admin, http.MethodPost, onView+"/rebuild",
		"Fill a view anew from the log, beside the one that is served", notFound, conflict,
	)), a.rebuild)
	call(a, accepted(operation(
		"cancel-rebuild", access.Admin, http.MethodDelete, onView+"/rebuild",
		"Break off the rebuild of a view that runs in this process; the view is served as it was", notFound,
	)), a.cancelRebuild)
	raw(a, with(long(operation(
		"verify-projection", access.Admin, http.MethodPost, onView+"/verify",
		"Compare a view with the log: a line of JSON for each step, the last one with result or problem",
		notFound, conflict,
	)), metaLines, reflect.TypeFor[verifyLine]()), a.verify)
}
