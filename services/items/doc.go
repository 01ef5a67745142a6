// Package items turns items, the form in which clients of OpenAI's APIs speak of a conversation, into the chat messages
// that the log keeps, and back. It is pure: no I/O, no clock.
//
// Items become messages and the same items again, whatever their type. A message is in the chat form that every other
// reader knows; only what that form can't say stands beside it, in the member item. An item of a type that chat has no
// form for stands there whole. A message that somebody else recorded is items, too: one for its text, and one for each
// tool call and result in it.
package items
