// Package recall is the long-term memory of prompts: short texts about an identity from turns that the prompt does not
// show.
//
// Snippets searches the memory within a time budget and turns the results into a short text. Where there is an index of
// meanings, the memory of the tables is searched by words and by meaning at once. Forwarder stores finalized turns in
// an external service, one document for each turn, and deletes the document when the turn is redacted. It is an effect
// of the log (projections/effects), and never runs in a request. While a deletion is not confirmed, its scope has no
// snippet.
package recall
