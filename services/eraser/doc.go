// Package eraser carries redactions and erasures out physically: what they cover is
// overwritten in the log (docs/design.md#erasure). It is a side effect of the log, fed by a runner
// like a view, and never decides what is shown: that the facts did already.
//
// What goes, by the fold's verdict:
//   - of a redacted turn, all earlier events of its session that name one of its
//     versions, from the newest back, so that what is left folds to the same session
//     whenever it is interrupted;
//   - of an erased session, all earlier events but the first link;
//   - an event that names a redacted turn or an erased session and comes later, also on
//     another subject than the session's, where its body says which session it means.
//
// It touches nothing where the session would fold to another one without the events:
// a redaction of a foreign publisher may lack the tombstones.
//
// Progress is the sequence up to which everything is done (jetlog.Notes). After a crash
// it begins there again, and finds gone what is gone. Erasing twice is harmless.
//
// It refuses to hold texts: of events it keeps positions, of turns ids.
package eraser
