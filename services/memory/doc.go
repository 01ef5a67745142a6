// Package memory is the long-term memory of prompts: short texts about an identity from turns that the prompt does not
// show.
//
// Snippets searches it within a budget and makes a short text of what it finds. Forwarder stores finalized turns in a
// service outside, one document a turn, as an effect of the log (projections/effects), never in a request; a turn that
// is redacted is deleted there. While a deletion is not confirmed, its scope has no snippet.
package memory
