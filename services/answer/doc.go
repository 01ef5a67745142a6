// Package answer has a model answer what a user says (docs/contract.md#chat): a message of a thread, or the input of a
// response. It records the message, builds the prompt, calls the model, tells a listener of the answer and records it.
//
// The message is durable before the model is called. The answer is recorded even if the client has gone. If the model
// fails, the turn stays pending, and its question stands in the next prompt. The log decides which turn may go on, so
// that holds across processes.
//
// A step is what one call adds: a message that opens a turn, or one that goes on with a turn.
package answer
