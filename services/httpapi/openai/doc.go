// Package openai speaks OpenAI's Conversations, Responses and Chat Completions APIs, so that its clients keep their
// history in Turnledger. It is a surface beside the native one, with OpenAI's form of errors and bodies
// (docs/openai.md). A conversation is a session, and its items are the messages of the session's turns.
package openai
