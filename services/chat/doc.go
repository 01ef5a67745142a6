// Package chat answers a user's message with a model (docs/contract.md#chat): it records the message, builds the
// prompt, calls the model, streams its answer and records it.
//
// The message is durable before the model is called. The answer is recorded even if the client has gone. If the model
// fails, the turn stays pending, and its question stands in the next prompt. The log decides which turn may go on, so
// that holds across processes.
package chat
