// Package eraser carries redactions and erasures out physically: it overwrites the events that they cover in the log
// (docs/design.md#erasure). It is a side effect of the log, fed by a runner like a view. It never decides what is
// shown: the facts in the log have decided that already.
//
// What it erases, by the fold's verdict:
//   - of a redacted turn, all earlier events of its session that name one of its
//     versions, from the newest back, so that what is left folds to the same session
//     whenever it is interrupted;
//   - of an erased session, all earlier events but the first link;
//   - an event that names a redacted turn or an erased session and comes later, also on
//     another subject than the session's, where its body says which session it means.
//
// It leaves events alone if the session would fold to another state without them: a redaction by a foreign publisher
// may lack the tombstones.
//
// Progress is the sequence up to which everything is done (jetlog.Notes). After a crash the eraser begins there again.
// Erasing an event twice is harmless.
//
// It holds no texts, only the positions of events and the ids of turns.
package eraser
