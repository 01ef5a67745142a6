// Package complete reads requests for chat completions, and writes their answers, in OpenAI's form
// (docs/contract.md#chat-completions). It does no I/O.
package complete
