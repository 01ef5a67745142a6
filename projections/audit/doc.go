// Package audit keeps the durable record of linked sessions in PostgreSQL: their turns, links and refused links, a
// ledger of every event, and dead letters of versions before. It is a projection of the log (projections.Projection)
// and the read side of its tables.
//
// A turn is a row of questions and a row of answers, joined by the view turns, so that a later answer is written
// without touching its question.
//
// Rules, in log order:
//   - Only turns of linked sessions have rows. A link brings in the session's earlier turns, those after its boundary.
//   - A correction is a new row in the old row's place; the old row names it. A redaction leaves a tombstone: ids,
//     positions, times and versions, no text; it is the same row whether or not the turn's own events are still in the
//     log. An erased session keeps one closed row, and no turns.
//   - The ledger has a row for each event that the log holds for good. Rows of events that the eraser takes out go with
//     the redaction or the erasure that asks for it: events that name the redacted turn, before or after it, and all
//     events of an erased session but its link. So a table that was kept live equals one that was built anew.
//   - security_events only grows: refused links and anomalies, without text. Rows of events that erasure took out of
//     the log can't be built anew; a rebuild carries them over into the new generation.
//
// Rows and checkpoint are one transaction, fenced by the checkpoint's sequence and epoch: an event is applied once, by
// one runner. The transaction does not wait for the disk: a crash loses rows and checkpoint together, and both are
// applied again from the log.
//
// What PostgreSQL can't hold is written so that it comes back as it was: U+0000 in a text as "␀0" (and "␀" itself as
// "␀␀"), messages nested deeper than 500 levels as a JSON string. Messages keep their bytes (json); metadata is jsonb,
// so its spaces, key order and forms of numbers are PostgreSQL's; a number that does not fit numeric, and metadata
// nested deeper than 500 levels, become strings. Bytes that are not UTF-8, which JSON does not allow, become U+FFFD.
//
// Only turns hold texts. A failed read is ErrUnavailable, never an empty answer. No error holds a value of a row.
package audit
