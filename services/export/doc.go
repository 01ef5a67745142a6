// Package export makes tables of a replay: a row for each event, or for each folded
// turn, as JSON Lines, CSV or Parquet. It takes the lines that the server prints and
// holds no more than a bounded part of them in memory; it talks to nobody.
package export
