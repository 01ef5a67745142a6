// Package respond answers requests of OpenAI's Responses API from sessions of the log: a response is a step of a turn.
// What a request asks for, what a response looks like, and which events a stream has, is pure; Service
// joins it with the log, the context builder and the model.
package respond
