// Package export makes tables of a replay: a row for each event, or for each folded turn, as JSON Lines, CSV or
// Parquet. It reads the lines that the server prints, and holds only a bounded part of them in memory. It makes no
// network calls.
package export
