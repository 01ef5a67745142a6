// Package contextbuilder builds the prompt for a model from a session and what else the request asks for. What a prompt
// leaves out, on each surface, is a table in docs/contract.md#context.
package contextbuilder
