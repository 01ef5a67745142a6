package problems_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/problems"
)

// contract are the codes of docs/contract.md#errors with their classes. Clients go by them: none is ever renamed.
var contract = map[string]problems.Class{
	"malformed": problems.Malformed, "unauthenticated": problems.Unauthenticated, "forbidden": problems.Forbidden,
	"not_found": problems.NotFound, "session_not_found": problems.NotFound, "turn_not_started": problems.NotFound,
	"turn_not_found": problems.NotFound, "method_not_allowed": problems.WrongMethod,
	"fork_too_deep": problems.Conflict, "session_exists": problems.Conflict, "turn_inherited": problems.Conflict,
	"session_linked_elsewhere": problems.Conflict, "turn_mismatch": problems.Conflict,
	"turn_redacted": problems.Conflict, "turn_replaced": problems.Conflict, "turn_pending": problems.Conflict,
	"request_id_in_use": problems.Conflict, "projection_not_fed": problems.Conflict,
	"rebuild_running": problems.Conflict, "log_not_empty": problems.Conflict,
	"stream_change_refused": problems.Conflict, "session_erased": problems.Gone, "body_too_large": problems.TooLarge,
	"unsupported_encoding": problems.WrongEncoding, "invalid_argument": problems.Invalid,
	"rate_limited": problems.RateLimited, "internal": problems.Internal, "model_failed": problems.ModelFailed,
	"position_not_reached": problems.Unavailable, "log_unavailable": problems.Unavailable,
	"audit_unavailable": problems.Unavailable, "projection_unavailable": problems.Unavailable,
	"index_unavailable": problems.Unavailable, "auth_unavailable": problems.Unavailable,
	"overloaded": problems.Unavailable,
}

// The codes are those of the contract, to the letter, and so are the page's; each has a class and a title.
func TestTheCodesAreTheContracts(t *testing.T) {
	t.Parallel()
	require.Equal(t, contract, problems.Codes())
	page, err := os.ReadFile("../../docs/contract.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Errors\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for code := range contract {
		require.Contains(t, section, "`"+code+"`")
		require.NotEmpty(t, problems.New(code, "x").Title(), code)
	}
	for _, row := range regexp.MustCompile(`(?m)^\| [0-9].*$`).FindAllString(section, -1) {
		for _, named := range regexp.MustCompile("[ (]`([a-z_]+)`").FindAllStringSubmatch(row, -1) {
			if !slices.Contains([]string{"request_id", "turn_id"}, named[1]) {
				require.Contains(t, contract, named[1])
			}
		}
	}
}

// Each error that the table names has a code of the contract, a detail, and a time to come again where it is passing.
func TestEachErrorHasACode(t *testing.T) {
	t.Parallel()
	for _, err := range problems.SafeWords() {
		p := problems.Of(fmt.Errorf("a text that the client sent: %w", err))
		require.Contains(t, contract, p.Code, err)
		require.NotEmpty(t, p.Detail, err)
		require.ErrorIs(t, p, err)
		require.Equal(t, p.Class == problems.Unavailable, p.RetryAfter() == 1, err)
	}
}

func TestProblemsOfErrors(t *testing.T) {
	t.Parallel()
	limited := &services.ModelRefusal{Status: 429, After: 1500 * time.Millisecond}
	for name, c := range map[string]struct {
		err          error
		code, field  string
		class        problems.Class
		retry        bool
		after        int
		detail, hint string
	}{
		"unknown": {errors.New("a text"), "internal", "", problems.Internal, true, 0,
			"an unexpected error; the server's log has it", ""},
		"a refusal": {fmt.Errorf("write: %w", decide.ErrTurnPending), "turn_pending", "", problems.Conflict, false, 0,
			decide.ErrTurnPending.Detail, ""},
		"a refusal that was not kept": {errors.Join(decide.ErrLinkedElsewhere, jetlog.ErrUnavailable),
			"log_unavailable", "", problems.Unavailable, true, 1,
			"the log did not answer; if it was a write, it may or may not have happened", ": the same request again finds out"},
		"a refusal of no code": {&decide.Refusal{Code: "odd", Detail: "a text"}, "internal", "", problems.Internal,
			true, 0, "an unexpected error; the server's log has it", ""},
		"a field": {&decide.Invalid{Field: "limit", Why: "must be a number"}, "invalid_argument", "limit",
			problems.Invalid, false, 0, "limit: must be a number", ""},
		"too often": {&services.TooOften{Wait: 2500 * time.Millisecond}, "rate_limited", "", problems.RateLimited, true, 3,
			"the session or the identity asks too often: come again when the header Retry-After says so", ""},
		"a busy model": {errors.Join(services.ErrModelFailed, limited), "model_failed", "", problems.ModelBusy, true, 2,
			"the model did not answer (its endpoint answered 429)",
			"; the turn is kept and pending, and the same request again asks the model again"},
		"a model that refuses": {errors.Join(services.ErrModelFailed, &services.ModelRefusal{Status: 400}), "model_failed",
			"", problems.ModelRefused, false, 0, "the model did not answer (its endpoint answered 400)",
			"; the turn is kept and pending, and the same request again asks the model again"},
		"an ended key before an unknown one": {errors.Join(access.ErrUnauthenticated, access.ErrKeyEnded),
			"unauthenticated", "", problems.Unauthenticated, false, 0, access.ErrKeyEnded.Error(), ""},
		"what waits before what is out": {errors.Join(projections.ErrUnavailable, projections.ErrNotYet),
			"audit_unavailable", "", problems.Unavailable, true, 1, "what is too old stays for now: the audit is being " +
				"rebuilt or verified, or has not applied it yet, or the memory outside has not deleted it (turnledger " +
				"projections list); it is tried again each minute", ""},
		"a deadline": {fmt.Errorf("wait: %w", context.DeadlineExceeded), "log_unavailable", "", problems.Unavailable, true,
			1, "the log did not answer; if it was a write, it may or may not have happened",
			": the same request again finds out"},
		"a view that is fed elsewhere": {projections.ErrNotFed, "projection_not_fed", "", problems.Conflict, false, 0,
			"this process does not feed the projection: ask the one that does", ", by --url or TURNLEDGER_URL (its role " +
				"has the name of the view: serve --roles audit feeds the audit, --roles recent the recent view in Redis)"},
		"the text of the whole error": {fmt.Errorf("one: %w", jetlog.ErrRefused), "stream_change_refused", "",
			problems.Conflict, false, 0, "one: " + jetlog.ErrRefused.Error(), ""},
	} {
		p := problems.Of(c.err)
		require.Equal(t, []any{c.code, c.field, c.class, c.retry, c.after, c.detail, c.hint},
			[]any{p.Code, p.Field, p.Class, p.Retry, p.RetryAfter(), p.Detail, p.Hint}, name)
	}
}

func TestAProblemAsASentence(t *testing.T) {
	t.Parallel()
	p := problems.New("forbidden", "the key lacks it")
	require.Equal(t, "The key lacks it.", p.Sentence())
	p.Detail = "It is said."
	require.Equal(t, "It is said.", p.Sentence())
	p.Field, p.Detail = "limit", "limit must be a number"
	require.Equal(t, "limit must be a number.", p.Sentence())
}
