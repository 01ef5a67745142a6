// Package respond has the forms of OpenAI's Responses API: what a request asks for, what a response looks like, and
// which events a stream has. It is pure. services/answer does what is asked.
package respond
