package projections

import "time"

// By is what statistics are grouped by.
type By string

// The groups of statistics.
const (
	ByNone       By = "none"
	ByPipeline   By = "pipeline_name"
	ByConsultant By = "consultant"
	ByRepository By = "repository"
)

// CountsFilter says which turns are counted, and how: those that started from Since on and before Until, in buckets of
// an Hour or a day.
type CountsFilter struct {
	Since, Until time.Time
	Hour         bool
	By           By
}

// Counts counts the turns that started in one bucket of time. A turn with all its versions counts once: Started =
// Finalized + Redacted + Pending, and Corrected turns are among the finalized ones. By is nil where the turns name
// none.
type Counts struct {
	Start                                            time.Time
	By                                               *string
	Started, Finalized, Redacted, Corrected, Pending int
	Sessions, Identities                             int
	// AnswerP50 and AnswerP95 are milliseconds until the answer; nil if no turn was answered in an append of its own.
	AnswerP50, AnswerP95 *float64
}

// Anomalies counts the events that had no effect in one bucket of time, by the reason: those that contradict the log,
// and refused links.
type Anomalies struct {
	Start  time.Time
	Reason string
	Events int
}

// MostCounts bounds the buckets of one answer.
const MostCounts = 10_000
