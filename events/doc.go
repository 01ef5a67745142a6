// Package events declares what can happen in a conversation, and how it is stored in the log: the facts, their
// CloudEvents envelope, ids, subjects and positions. It does no I/O. Whether a fact counts is decided by the fold in
// events/session.
package events
