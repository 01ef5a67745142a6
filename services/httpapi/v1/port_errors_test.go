package v1_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/history"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
	"github.com/turnledger/turnledger/services/read"
)

// failing is a command side that fails in one way.
type failing struct {
	services.TurnWriter
	err error
}

func (f failing) StartTurn(context.Context, conversation.Start) (services.Turn, error) {
	if f.err == nil {
		panic("a text that the client sent")
	}
	return services.Turn{}, f.err
}

func (f failing) StartTurns(_ context.Context, commands []conversation.Start) []services.TurnOutcome {
	return slices.Repeat([]services.TurnOutcome{{Err: f.err}}, len(commands))
}

func failingWith(err error) setting {
	return func(c *config, _ *history.Config, _ *read.Config) {
		c.Turns = failing{err: err}
	}
}

//conformance:h40 l13
func TestErrorsOfThePorts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status int
		code   string
		log    string
	}{
		"unavailable": {fmt.Errorf("append: %w: no responders", jetlog.ErrUnavailable), 503, "log_unavailable",
			"no responders"},
		"closed": {fmt.Errorf("wait: %w", jetlog.ErrClosed), 503, "log_unavailable", "log_unavailable: wait: closed"},
		"too slow": {fmt.Errorf("wait: %w", context.DeadlineExceeded), 503, "log_unavailable",
			"log_unavailable: context deadline exceeded"},
		"no connection": {fmt.Errorf("a text that the client sent: %w", &net.OpError{Op: "dial", Net: "tcp",
			Err: syscall.ECONNREFUSED}), 500, "internal", "dial tcp: connection refused"},
		"too large": {fmt.Errorf("append: %w", jetlog.ErrTooLarge), 413, "body_too_large", ""},
		"refused":   {fmt.Errorf("write: %w", conversation.ErrTurnRedacted), 409, "turn_redacted", ""},
		"no room": {fmt.Errorf("append: %w: 0 MB free", jetlog.ErrNoWrites), 503, "log_unavailable",
			"0 MB free"},
		"refused and not kept": {errors.Join(conversation.ErrLinkedElsewhere, jetlog.ErrUnavailable), 503,
			"log_unavailable", ""},
		"unknown": {fmt.Errorf("decode %w", errors.New("a text that the client sent")), 500, "internal",
			"internal: *errors.errorString"},
		"tables": {fmt.Errorf("look: %w: %w", projections.ErrUnavailable, fmt.Errorf("a text that the client sent: %w",
			errors.Join(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, &pgconn.PgError{
				Code: "57P01", Message: "a text that the client sent"}))), 503, "audit_unavailable",
			"audit_unavailable: the view's store does not answer: dial tcp: connection refused: SQLSTATE 57P01"},
		"tables that are behind": {fmt.Errorf("%w: they are at 0:5 of 0:7", services.ErrBehind), 503, "audit_unavailable",
			"audit_unavailable: the view is behind the log: they are at 0:5 of 0:7"},
		"a refusal of no code": {&conversation.Refusal{Code: "odd", Detail: "a text that the client sent"}, 500,
			"internal", "*conversation.Refusal"},
		"a panic":                 {nil, 500, "internal", "panic: string"},
		"position of another log": {services.ErrPositionNotReached, 503, "position_not_reached", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(cfg *config, _ *history.Config, _ *read.Config) {
				cfg.Turns = failing{err: c.err}
			})
			a := s.do("POST", "/v1/sessions/s/turns", `{"request_id":"r","question_neutral":"q"}`)
			requireProblem(t, a, c.status, c.code)
			require.NotContains(t, string(a.raw), "a text that the client sent")
			require.NotContains(t, s.logs.String(), "a text that the client sent")
			require.Contains(t, s.logs.String(), c.log)
			require.Equal(t, c.status == 503, a.header.Get("Retry-After") != "")
		})
	}
}

// Each code of the contract has the status that its page says.
func TestCodesHaveTheirStatuses(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/contract.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Errors\n")
	section, _, _ = strings.Cut(section, "\n## ")
	seen := 0
	for _, row := range regexp.MustCompile(`(?m)^\| ([0-9]{3}[^|]*) \|(.*)$`).FindAllStringSubmatch(section, -1) {
		statuses := regexp.MustCompile("[0-9]{3}").FindAllString(row[1], -1)
		for _, code := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[2], -1) {
			p := problems.New(code[1], "x")
			if p.Class == 0 {
				continue // a member that the page names beside
			}
			seen++
			a := start(t, failingWith(p)).do("POST", "/v1/sessions/s/turns", fresh+`}`)
			require.Contains(t, statuses, fmt.Sprint(a.status), code[1])
			require.Equal(t, code[1], a.body["code"])
		}
	}
	require.Equal(t, 35, seen)
}

// sweeping is a retention that fails.
type sweeping struct{ err error }

func (s sweeping) Sweep(context.Context) (services.Swept, error)    { return services.Swept{}, s.err }
func (s sweeping) DrySweep(context.Context) (services.Swept, error) { return services.Swept{}, s.err }

// Who asks for a retention is told what it waits for, also where that is said as something that is out.
func TestARetentionThatWaitsSaysSo(t *testing.T) {
	t.Parallel()
	for detail, err := range map[string]error{
		"what is too old stays for now":  errors.Join(projections.ErrUnavailable, projections.ErrNotYet),
		"the audit tables do not answer": projections.ErrUnavailable,
	} {
		s := start(t, func(c *config, _ *history.Config, _ *read.Config) {
			c.Retention = sweeping{err}
		})
		a := s.do("POST", "/v1/retention", nil)
		requireProblem(t, a, http.StatusServiceUnavailable, "audit_unavailable")
		require.Contains(t, a.body["detail"], detail)
	}
}

func TestATurnTooLargeForTheLog(t *testing.T) {
	t.Parallel()
	s := start(t, failingWith(jetlog.ErrTooLarge))
	requireProblem(t, s.do("POST", "/v1/sessions/s/turns", fresh+`}`), http.StatusRequestEntityTooLarge,
		"body_too_large")
	require.Zero(t, s.head())
}

// Operators find the cause of a 503 by its detail, on the page that lists them. Each row of the page's table is tried.
func TestEachCauseOfAFailedWriteHasItsDetail(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/operations.md")
	require.NoError(t, err)
	const restoring = "a backup is being restored; the log is being replaced by a backup"
	replaced := &wire.Suspended{Why: "the log is being replaced by a backup: come again"}
	causes := map[string][]error{
		restoring:                                         {&wire.Suspended{Why: v1.WhyRestoring}, replaced},
		"the issuer of tokens does not answer":            {access.ErrNoKeys},
		"as many requests are under way as may be":        {wire.ErrOverloaded},
		"the session gets so many writes at once":         {fmt.Errorf("decide: %w", services.ErrBusy)},
		"the log is not the one that this process opened": {errors.Join(jetlog.ErrUnavailable, jetlog.ErrStream)},
		"the log takes no writes":                         {fmt.Errorf("append: %w", jetlog.ErrNoWrites)},
		"the log did not answer":                          {fmt.Errorf("append: %w", jetlog.ErrUnavailable)},
	}
	_, section, _ := strings.Cut(string(page), "## When a write is 503")
	_, table, _ := strings.Cut(section, "| --- | --- | --- | --- |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	require.Len(t, rows, len(causes))
	for _, row := range rows {
		cells := strings.Split(row, " | ")
		details, code := strings.Split(cells[1], "; "), strings.Trim(cells[0], "|` ")
		require.Len(t, causes[cells[1]], len(details), cells[1])
		for i, err := range causes[cells[1]] {
			a := start(t, failingWith(err)).do("POST", "/v1/sessions/s/turns", fresh+`}`)
			requireProblem(t, a, http.StatusServiceUnavailable, code)
			require.True(t, strings.HasPrefix(a.body["detail"].(string), details[i]), "%s", a.raw)
		}
	}
}

// unreachableViews are views whose stores do not answer.
type unreachableViews struct{ services.ProjectionKeeper }

func (unreachableViews) Rebuild(context.Context, string) (uint64, error) {
	return 0, projections.Unavailable(errors.New("connection refused"))
}

func (unreachableViews) Verify(context.Context, string, int, func(done, of uint64) error,
	func(projections.Difference) error) (int, error) {
	return 0, projections.Unavailable(errors.New("connection refused"))
}

// A view whose store does not answer is not taken for the audit's tables, which other requests ask.
func TestTheStoreOfAViewThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) { c.Keeper = unreachableViews{} })
	for _, work := range []string{"rebuild", "verify"} {
		a := s.do("POST", "/v1/projections/v/"+work, nil)
		requireProblem(t, a, http.StatusServiceUnavailable, "projection_unavailable")
	}
}
