// Package contextbuilder builds the prompt for a model from a session and what else the request asks for
// (docs/contract.md#context).
package contextbuilder
