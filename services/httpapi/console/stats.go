package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

// statsView is the page of statistics.
type statsView struct {
	Bucket, By string
	Charts     []chart
	Rows       []projections.Counts
	Anomalies  []projections.Anomalies
	LagEvents  uint64
}

// chart is a bar chart.
type chart struct {
	Title, Highest, From, To string
	Width, Height            int
	Bars                     []bar
	// None: there is nothing to draw, not even a zero.
	None bool
}

// bar is a bar of a chart, with what it says.
type bar struct {
	X, Y, W, H float64
	Say        string
}

// How far the statistics of hours and of days go back, in buckets.
const (
	hoursBack = 48
	daysBack  = 30
)

// stats shows counts of turns over time, and the times of answers.
func (s *surface) stats(ctx context.Context, r *http.Request) (view, error) {
	query := r.URL.Query()
	out := statsView{Bucket: query.Get("bucket"), By: query.Get("by")}
	size, back := 24*time.Hour, daysBack
	switch out.Bucket {
	case "", "day":
		out.Bucket = "day"
	case "hour":
		size, back = time.Hour, hoursBack
	default:
		return view{}, invalid("bucket", "must be hour or day")
	}
	by := []string{string(projections.ByNone), string(projections.ByPipeline), string(projections.ByConsultant),
		string(projections.ByRepository)}
	if out.By == "" {
		out.By = by[0]
	}
	if !slices.Contains(by, out.By) {
		return view{}, invalid("by", "must be pipeline_name, consultant, repository or none")
	}
	if s.cfg.Counts == nil {
		return view{}, projections.ErrUnavailable
	}
	until := s.cfg.Now().UTC().Truncate(size).Add(size)
	since := until.Add(-time.Duration(back) * size)
	ask := services.CountsAsk{WithAnomalies: true, CountsFilter: projections.CountsFilter{
		Since: since, Until: until, Hour: size == time.Hour, By: projections.By(out.By),
	}}
	page, err := s.cfg.Counts.Counts(ctx, ask)
	if err != nil {
		return view{}, acrossError(err)
	}
	out.LagEvents = page.LagEvents
	out.Charts = chartsOf(page, since, size, back)
	slices.Reverse(page.Counts)
	out.Rows = page.Counts[:min(len(page.Counts), mostRows)]
	slices.Reverse(page.Anomalies)
	out.Anomalies = page.Anomalies[:min(len(page.Anomalies), mostRows)]
	return view{"stats", "Statistics", out}, nil
}

// mostRows bounds the rows of each table.
const mostRows = 500

// chartsOf draws the turns of each bucket, those without an answer, the slowest of their answer times, and the events
// without effect.
func chartsOf(page services.CountsPage, since time.Time, size time.Duration, buckets int) []chart {
	started, pending, slow := make([]float64, buckets), make([]float64, buckets), make([]float64, buckets)
	without, timed := make([]float64, buckets), false
	bucket := func(start time.Time) (i int, drawn bool) {
		i = int(start.Sub(since) / size)
		return i, i >= 0 && i < buckets
	}
	for _, a := range page.Anomalies {
		if i, drawn := bucket(a.Start); drawn {
			without[i] += float64(a.Events)
		}
	}
	for _, c := range page.Counts {
		i, drawn := bucket(c.Start)
		if !drawn {
			continue
		}
		started[i] += float64(c.Started)
		pending[i] += float64(c.Pending)
		if c.AnswerP95 != nil {
			slow[i], timed = max(slow[i], *c.AnswerP95), true
		}
	}
	name := func(i int) string { return since.Add(time.Duration(i) * size).Format("2006-01-02 15:04") }
	times := draw("Answer times, 95 of 100 are below", "ms", slow, 0, name)
	times.None = !timed
	return []chart{
		draw("Turns that started", "turns", started, 0, name),
		draw("Of these without an answer yet", "turns", pending, 0, name),
		times,
		draw("Events without effect", "events", without, 0, name),
	}
}

// draw returns a bar chart of values, which has room for at least the value least.
func draw(title, unit string, values []float64, least float64, name func(int) string) chart {
	const width, height, top = 360, 120, 14
	out := chart{Title: title, Width: width, Height: height, From: name(0), To: name(len(values) - 1)}
	highest := max(slices.Max(values), least)
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) + " " + unit }
	out.Highest = number(highest)
	step := float64(width) / float64(len(values))
	for i, v := range values {
		if v == 0 {
			continue
		}
		h := v / highest * (height - top)
		out.Bars = append(out.Bars, bar{float64(i)*step + 1, height - h, step - 2, h, name(i) + ": " + number(v)})
	}
	return out
}
