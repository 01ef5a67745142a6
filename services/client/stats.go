package client

import (
	"context"
	"strings"
	"time"
)

// StatsQuery asks for statistics; zero values are the server's defaults: the last 30 days, by day. Since and Until
// bound the start of turns. Bucket is hour or day; By is pipeline_name, consultant, repository or none.
type StatsQuery struct {
	Since, Until time.Time
	Bucket, By   string
}

// Stats counts turns of all sessions as they were at Position, LagEvents behind the log.
type Stats struct {
	Buckets   []StatsBucket `json:"buckets"`
	Position  string        `json:"position"`
	LagEvents uint64        `json:"lag_events"`
}

// StatsBucket counts the turns that started within an hour or a day: Started is the sum of Finalized, Redacted and
// Pending, and Corrected turns are among the finalized ones. AnswerMSP50 and AnswerMSP95 are milliseconds until the
// answer, nil if no turn was answered in a call of its own.
type StatsBucket struct {
	Start       time.Time `json:"start"`
	By          string    `json:"by"`
	Started     int       `json:"started"`
	Finalized   int       `json:"finalized"`
	Redacted    int       `json:"redacted"`
	Corrected   int       `json:"corrected"`
	Pending     int       `json:"pending"`
	Sessions    int       `json:"sessions"`
	Identities  int       `json:"identities"`
	AnswerMSP50 *float64  `json:"answer_ms_p50"`
	AnswerMSP95 *float64  `json:"answer_ms_p95"`
}

// Stats counts turns of all sessions, which a key needs events:read or admin for.
func (c *Client) Stats(ctx context.Context, q StatsQuery) (Stats, error) {
	return call[Stats](ctx, c, get("count turns", "/stats", "since", moment(q.Since), "until", moment(q.Until),
		"bucket", q.Bucket, "by", q.By, "min_position", c.seen.all()))
}

// StatsHeading is the heading of a table of buckets, of which Cells are the rows.
const StatsHeading = "START\tBY\tSTARTED\tFINALIZED\tPENDING\tREDACTED\tCORRECTED\tSESSIONS\tIDENTITIES\tP50\tP95\t"

// Cells returns the function for the cells of a bucket in a table. The last cell is a bar, as long as the bucket's
// part of the largest one.
func (s Stats) Cells() func(StatsBucket) []any {
	most := 1
	for _, b := range s.Buckets {
		most = max(most, b.Started)
	}
	return func(b StatsBucket) []any {
		return []any{b.Start.UTC().Format("2006-01-02 15:04"), dash(oneLine(b.By, 40)), b.Started, b.Finalized,
			b.Pending, b.Redacted, b.Corrected, b.Sessions, b.Identities, answerTime(b.AnswerMSP50),
			answerTime(b.AnswerMSP95), bar(b.Started, most)}
	}
}

// answerTime formats a time until an answer.
func answerTime(ms *float64) string {
	if ms == nil {
		return "-"
	}
	return time.Duration(*ms * float64(time.Millisecond)).Round(time.Millisecond).String()
}

// barWidth is the length of the longest bar.
const barWidth = 20

// bar draws n of most.
func bar(n, most int) string {
	eighths := (n*barWidth*8 + most/2) / most
	if n > 0 {
		eighths = max(eighths, 1)
	}
	out := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		out += string(rune('█' + 8 - rest))
	}
	return out
}
