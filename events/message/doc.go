// Package message is what a chat message is: it reads messages in every vendor's form (OpenAI's chat, Anthropic's
// blocks, the AI SDK's parts, items of the Responses API), and renders them for an endpoint. It does no I/O.
package message
