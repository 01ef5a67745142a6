// Package chat answers a user's message with a model (docs/contract.md#chat): it records
// the message, builds the prompt, calls the model, streams its answer and records it.
//
// The message is durable before the model is called. The answer is recorded whether or
// not the client still listens; where the model fails, the turn stays pending, and its
// question stands in the next prompt. Which turn may go on is decided from the log, and
// so it holds across processes.
package chat
