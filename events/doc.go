// Package events says what can have happened in a conversation, and how it
// stands in the log: the facts, their CloudEvents envelope, ids, subjects and
// positions. It does no I/O and judges nothing: whether a fact
// counts is decided by the fold in events/conversation.
package events
