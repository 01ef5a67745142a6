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

// writes adds the calls that record.
func (a *API) writes(api huma.API) {
	start := operation("start-turn", access.TurnsWrite, http.MethodPost, onSession+"/turns", "Record a question", unread, conflict, gone, tooBig, tooMany)
	start.DefaultStatus = http.StatusCreated
	register(a, api, start, a.startTurn)
	register(a, api, operation("finalize-turn", access.TurnsWrite, http.MethodPost, onTurn+"/finalize", "Record the answer of a turn",
		unread, notFound, conflict, gone, tooBig), a.finalizeTurn)
	register(a, api, operation("link-session", access.TurnsWrite, http.MethodPut, onSession+"/identity", "Link a session to an identity",
		unread, conflict, gone), a.linkSession)
	register(a, api, with(operation("redact-turn", access.TurnsRedact, http.MethodPost, onTurn+"/redact", "Make a turn, with all its versions, a tombstone",
		unread, notFound, gone), metaOptional, true), a.redactTurn)
	register(a, api, operation("correct-turn", access.TurnsWrite, http.MethodPost, onTurn+"/correct", "Replace a turn",
		unread, notFound, conflict, gone, tooBig), a.correctTurn)
	register(a, api, with(operation("reset-session", access.TurnsWrite, http.MethodPost, onSession+"/reset", "Let prompts and history start anew",
		unread, gone), metaOptional, true), a.resetSession)
}

// chats adds the calls that ask a model.
func (a *API) chats(api huma.API) {
	chat := func(id, path, summary string) huma.Operation {
		// A model tells what it was shown.
		op := operation(id, access.TurnsWrite|access.ContextRead, http.MethodPost, path, summary, unread, conflict, gone, tooBig, tooMany, http.StatusBadGateway)
		return with(with(op, metaBounds, true), metaLong, true)
	}
	stream := func(op huma.Operation) huma.Operation {
		return with(op, metaAnswer, reflect.TypeFor[chatJSON]())
	}
	registerFor(api, chatDeadline, chat("send-message", "/threads/{thread_id}/messages", "Ask the model in a thread"), a.thread)
	registerFor(api, chatDeadline, stream(chat("stream-message", "/threads/{thread_id}/messages/stream", "The same as server-sent events: begun, delta, done or error")), a.threadStream)
	registerFor(api, chatDeadline, chat("chat", "/chat", "Ask the model; the thread stands in the body or the header"), a.chat)
	registerFor(api, chatDeadline, stream(chat("stream-chat", "/chat/stream", "The same as server-sent events: begun, delta, done or error")), a.chatStream)
}

// reads adds the calls that only read.
func (a *API) reads(api huma.API) {
	register(a, api, operation("get-session", access.ContextRead, http.MethodGet, onSession, "Look at a session"), a.session)
	register(a, api, operation("list-turns", access.ContextRead, http.MethodGet, onSession+"/turns", "List a session's turns"), a.listTurns)
	register(a, api, operation("get-history", access.ContextRead, http.MethodGet, onSession+"/history", "Get the question and answer pairs for a prompt"), a.history)
	register(a, api, with(operation("build-context", access.ContextRead, http.MethodPost, onSession+"/context", "Get the messages to send to a model",
		unread, tooBig, tooMany), metaAnswer, reflect.TypeFor[contextJSON]()), a.buildContext)
	register(a, api, operation("list-identity-turns", access.ContextRead, http.MethodGet, "/identities/{identity_id}/turns", "List an identity's turns across its sessions, the newest page first, each page newest last"), a.identityTurns)
}

// keeping adds the calls that look after the views.
func (a *API) keeping(api huma.API) {
	rebuild := operation("rebuild-projection", access.Admin, http.MethodPost, "/projections/{name}/rebuild", "Fill a view anew from the log, beside the one that is served", notFound, conflict)
	rebuild.DefaultStatus = http.StatusAccepted
	register(a, api, rebuild, a.rebuild)
	cancel := operation("cancel-rebuild", access.Admin, http.MethodDelete, "/projections/{name}/rebuild", "Break off the rebuild of a view that runs in this process; the view is served as it was", notFound)
	cancel.DefaultStatus = http.StatusAccepted
	register(a, api, cancel, a.cancelRebuild)
	verify := operation("verify-projection", access.Admin, http.MethodPost, "/projections/{name}/verify", "Compare a view with the log: a line of JSON for each step, the last one with result or problem", notFound, conflict)
	registerRaw[verifyIn](api, with(verify, metaLines, reflect.TypeFor[verifyLine]()), a.verify)
}
