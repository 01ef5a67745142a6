package export_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/export"
)

// at is when the n-th event was recorded.
func at(n int) time.Time {
	return time.Date(2026, 11, 21, 8, 0, n, 123456000, time.UTC)
}

// line prints a fact as a replay does.
func line(t testing.TB, n int, f events.Fact, session string) []byte {
	t.Helper()
	env, err := events.Encode(f, at(n))
	require.NoError(t, err)
	return printed(n, f.EventID(), f.Type(), session, string(env.Body))
}

func printed(n int, id, typ, subject, data string) []byte {
	return fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/turnledger","type":%q,"subject":%q,"time":%q,"position":"0:%d","recordedat":%q,"data":%s}`,
		id, typ, subject, at(n).Format(time.RFC3339Nano), n, at(n).Format(time.RFC3339Nano), data)
}

func asked(session, request, question string) *events.TurnStarted {
	return &events.TurnStarted{
		TurnID: events.TurnID(session, request), SessionID: session, RequestID: request,
		Question: events.Question{QuestionNeutral: question, QuestionMessages: fmt.Appendf(nil,
			`[{"role":"user","content":%q}]`, question)},
	}
}

func answered(session, request, answer string) *events.TurnFinalized {
	return &events.TurnFinalized{TurnID: events.TurnID(session, request), SessionID: session,
		Answer: events.Answer{AnswerNeutral: answer}}
}

// story is a replay of two sessions: a turn that was corrected, one that waits, and
// one whose redaction the server knew of.
func story(t testing.TB) [][]byte {
	t.Helper()
	gone := events.TurnID("b", "1").String()
	return [][]byte{
		line(t, 1, asked("a", "1", "Who?, \"she\"\nasked"), "a"),
		line(t, 2, answered("a", "1", "Nobody."), "a"),
		printed(3, gone+".started", events.TypeTurnStarted, "b", `{"turn_id":"`+gone+`","session_id":"b","request_id":"1","redacted":true}`),
		line(t, 4, &events.SessionLinked{SessionID: "a", IdentityID: "u"}, "a"),
		line(t, 5, &events.TurnCorrected{
			TurnID: events.TurnID("a", "2"), SessionID: "a", RequestID: "2", ReplacesTurnID: events.TurnID("a", "1"),
			Question: events.Question{QuestionNeutral: "Who?"}, Answer: events.Answer{AnswerNeutral: "Ada."},
		}, "a"),
		line(t, 6, &events.TurnRedacted{TurnID: events.TurnID("b", "1"), SessionID: "b",
			Tombstones: []events.Tombstone{{
				TurnID: events.TurnID("b", "1"), RequestID: "1", Place: events.Position{Seq: 3},
				Position: events.Position{Seq: 3}, Status: "pending", CreatedAt: at(3), RecordVersion: 1,
			}}}, "b"),
		line(t, 7, asked("b", "2", "Still?"), "b"),
		printed(8, "0:8", "unknown", "b", `{"problem":"not_a_cloudevent"}`),
		line(t, 9, &events.IdentityErased{IdentityID: "v", ReceiptID: "r"}, "v"),
	}
}

func eventsTable(t testing.TB, f export.Format, lines [][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	table, err := export.Events(f, &out, true)
	require.NoError(t, err)
	for _, l := range lines {
		r, err := export.ParseEvent(l)
		require.NoError(t, err)
		require.NoError(t, table.Write(r))
	}
	require.NoError(t, table.Close())
	return out.Bytes()
}

func TestEventsAsParquetReadBackAsTheyWere(t *testing.T) {
	t.Parallel()
	raw := eventsTable(t, export.Parquet, story(t))
	rows, err := parquet.Read[export.EventRow](bytes.NewReader(raw), int64(len(raw)))
	require.NoError(t, err)
	require.Len(t, rows, 9)
	turn := events.TurnID("a", "1").String()
	require.Equal(t, at(1), rows[0].RecordedAt.UTC())
	require.Equal(t, at(1), rows[0].Time.UTC())
	require.Equal(t, []any{"0:1", int32(0), int64(1), turn + ".started", events.TypeTurnStarted, "a", turn, false},
		[]any{rows[0].Position, rows[0].Partition, rows[0].Sequence, rows[0].ID, rows[0].Type, *rows[0].Subject,
			*rows[0].TurnID, rows[0].Redacted})
	require.Nil(t, rows[0].Problem)
	require.True(t, json.Valid([]byte(rows[0].Data)))
	require.Contains(t, rows[0].Data, `"question_neutral":"Who?, \"she\"\nasked"`)
	require.True(t, rows[2].Redacted)
	require.Nil(t, rows[3].TurnID, "a link is no turn's")
	require.Equal(t, "not_a_cloudevent", *rows[7].Problem)

	file, err := parquet.OpenFile(bytes.NewReader(raw), int64(len(raw)))
	require.NoError(t, err)
	schema := file.Schema().String()
	require.Contains(t, schema, "required int64 recordedat (TIMESTAMP(isAdjustedToUTC=true,unit=MICROS))")
	require.Contains(t, schema, "optional int64 time (TIMESTAMP(isAdjustedToUTC=true,unit=MICROS))")
	require.Contains(t, schema, "data (JSON)")
}

func TestEventsAsCSV(t *testing.T) {
	t.Parallel()
	records, err := csv.NewReader(bytes.NewReader(eventsTable(t, export.CSV, story(t)))).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 10)
	require.Equal(t, "position,partition,sequence,recordedat,time,id,source,type,subject,turn_id,redacted,problem,data",
		strings.Join(records[0], ","))
	require.Equal(t, []string{"0:4", "0", "4", "2026-11-21T08:00:04.123456Z", "2026-11-21T08:00:04.123456Z",
		(&events.SessionLinked{SessionID: "a", IdentityID: "u"}).EventID(),
		"/turnledger", events.TypeSessionLinked, "a", "", "false", "", `{"session_id":"a","identity_id":"u"}`},
		records[4])
}

func turnsTable(t testing.TB, f export.Format, lines [][]byte) []byte {
	return turnsBy(t, session.Rules{}, f, lines)
}

func turnsBy(t testing.TB, rules session.Rules, f export.Format, lines [][]byte) []byte {
	t.Helper()
	dir := t.TempDir()
	folder, err := export.NewFolder(dir, "")
	require.NoError(t, err)
	for _, l := range lines {
		require.NoError(t, folder.Add(l))
	}
	var out bytes.Buffer
	table, err := export.Turns(f, &out)
	require.NoError(t, err)
	require.NoError(t, folder.Write(table, rules))
	require.NoError(t, table.Close())
	require.NoError(t, folder.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "what was put aside holds texts")
	return out.Bytes()
}

func TestTurnsAreFolded(t *testing.T) {
	t.Parallel()
	var rows []export.TurnRow
	for l := range bytes.Lines(turnsTable(t, export.JSONL, story(t))) {
		var r export.TurnRow
		require.NoError(t, json.Unmarshal(l, &r))
		rows = append(rows, r)
	}
	byTurn := map[string]export.TurnRow{}
	for _, r := range rows {
		byTurn[r.TurnID] = r
	}
	require.Len(t, byTurn, 4)
	old, current := byTurn[events.TurnID("a", "1").String()], byTurn[events.TurnID("a", "2").String()]
	require.Equal(t, []any{"replaced", current.TurnID, "0:1", "u"}, []any{old.Status, *old.ReplacedByTurnID,
		old.Position, *old.IdentityID})
	require.Equal(t, []any{"finalized", "Who?", "Ada.", int32(2), at(1)}, []any{current.Status,
		*current.QuestionNeutral, *current.AnswerNeutral, current.RecordVersion, current.CreatedAt})
	gone, waiting := byTurn[events.TurnID("b", "1").String()], byTurn[events.TurnID("b", "2").String()]
	require.Equal(t, []any{"redacted", at(3), at(6)}, []any{gone.Status, gone.CreatedAt, *gone.DeletedAt})
	require.Nil(t, gone.QuestionNeutral)
	require.Equal(t, "pending", waiting.Status)
	require.Nil(t, waiting.AnswerNeutral)
	require.JSONEq(t, `[{"role":"user","content":"Still?"}]`, string(waiting.QuestionMessages))

	raw := turnsTable(t, export.Parquet, story(t))
	read, err := parquet.Read[export.TurnRow](bytes.NewReader(raw), int64(len(raw)))
	require.NoError(t, err)
	require.Len(t, read, 4)
	for i, r := range read {
		require.Equal(t, rows[i].TurnID, r.TurnID)
		require.Equal(t, rows[i].QuestionNeutral, r.QuestionNeutral)
		require.Equal(t, rows[i].CreatedAt, r.CreatedAt.UTC())
		require.Equal(t, rows[i].FinalizedAt == nil, r.FinalizedAt == nil)
	}
	records, err := csv.NewReader(bytes.NewReader(turnsTable(t, export.CSV, story(t)))).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 5)
}

// The sessions of a person come as they began, whatever file they were put aside in, and
// each is whole.
func TestSessionsComeInTheOrderOfTheirFirstTurns(t *testing.T) {
	t.Parallel()
	const sessions = 300 // more than there are files
	name := func(n int) string { return fmt.Sprint("s", (n*7919)%sessions) }
	var lines [][]byte
	var want []string
	for n := range sessions {
		lines = append(lines, line(t, n+1, asked(name(n), "1", "first"), name(n)))
		want = append(want, name(n)+" first", name(n)+" second")
	}
	for n := range sessions {
		lines = append(lines, line(t, sessions+n+1, asked(name(n), "2", "second"), name(n)))
	}
	var got []string
	for l := range bytes.Lines(turnsTable(t, export.JSONL, lines)) {
		var r export.TurnRow
		require.NoError(t, json.Unmarshal(l, &r))
		got = append(got, r.SessionID+" "+*r.QuestionNeutral)
	}
	require.Equal(t, want, got)
}

// One branch is shown with what it shares and the identity of its root, also before its own link; a fork that names the
// session of somebody else shares nothing of it.
func TestTurnsOfOneBranch(t *testing.T) {
	t.Parallel()
	fork := func(of string) *events.SessionForked {
		return &events.SessionForked{SessionID: "b", RequestID: "f", FromSessionID: of, Root: "a",
			Segments: []events.Segment{{SessionID: of, ThroughTurnID: events.TurnID(of, "1"),
				Through: events.Position{Seq: 2}}}}
	}
	for _, c := range []struct {
		of   string
		more []events.Fact
		want []string
	}{
		{"a", nil, []string{"a u true", "b u false"}},
		{"other", nil, []string{"b u false"}},
		{"a", []events.Fact{&events.SessionLinked{SessionID: "b", IdentityID: "u"},
			&events.SessionErased{SessionID: "a", ReceiptID: "r"}}, []string{"b  false"}},
	} {
		of := c.of
		folder, err := export.NewFolder(t.TempDir(), "b")
		require.NoError(t, err)
		facts := []events.Fact{asked(of, "1", "q"), answered(of, "1", "a"), fork(of), asked("b", "2", "q"),
			&events.SessionLinked{SessionID: "a", IdentityID: "u"}, asked(of, "3", "later")}
		for i, f := range append(facts, c.more...) {
			sessionID := events.NamesOf(f).SessionID
			if l, is := f.(*events.SessionLinked); is {
				sessionID = l.SessionID
			} else if gone, is := f.(*events.SessionErased); is {
				sessionID = gone.SessionID
			} else if _, is := f.(*events.SessionForked); is {
				sessionID = "b"
			}
			require.NoError(t, folder.Add(line(t, i+1, f, sessionID)))
		}
		require.Equal(t, slices.Compact([]string{"a", of}), folder.Origins())
		var out bytes.Buffer
		table, err := export.Turns(export.JSONL, &out)
		require.NoError(t, err)
		require.NoError(t, folder.Write(table, session.Rules{}))
		require.NoError(t, table.Close())
		require.NoError(t, folder.Close())
		var got []string
		for l := range bytes.Lines(out.Bytes()) {
			var r export.TurnRow
			require.NoError(t, json.Unmarshal(l, &r))
			got = append(got, fmt.Sprint(r.SessionID, " ", identityOf(r), " ", r.Inherited))
		}
		require.Equal(t, c.want, got)
	}
}

// A row group is held in memory, so that there are many.
func TestRowGroupsAreBounded(t *testing.T) {
	t.Parallel()
	l := line(t, 1, asked("a", "1", strings.Repeat("x", 100_000)), "a")
	raw := eventsTable(t, export.Parquet, bytesOf(l, 1000))
	file, err := parquet.OpenFile(bytes.NewReader(raw), int64(len(raw)))
	require.NoError(t, err)
	require.Greater(t, len(file.RowGroups()), 2)
	require.Equal(t, int64(1000), file.NumRows())
}

func bytesOf(l []byte, n int) (out [][]byte) {
	for range n {
		out = append(out, l)
	}
	return out
}

func TestLineThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, l := range []string{"", "{", `{"position":"x"}`, `[]`} {
		_, err := export.ParseEvent([]byte(l))
		require.ErrorIs(t, err, export.ErrLine, l)
	}
	_, err := export.Events("xml", &bytes.Buffer{}, true)
	require.ErrorIs(t, err, export.ErrFormat)
}

func BenchmarkParquet(b *testing.B) {
	l := line(b, 1, asked("a", "1", strings.Repeat("text of a turn. ", 6)), "a")
	table, err := export.Events(export.Parquet, &bytes.Buffer{}, true)
	require.NoError(b, err)
	for b.Loop() {
		r, err := export.ParseEvent(l)
		require.NoError(b, err)
		require.NoError(b, table.Write(r))
	}
	require.NoError(b, table.Close())
}

// Among all sessions a branch is folded in another file than its root, and has no identity either once that is erased.
func TestABranchWithoutItsRootHasNoIdentity(t *testing.T) {
	t.Parallel()
	lines := [][]byte{
		line(t, 1, &events.SessionForked{SessionID: "b", RequestID: "f", FromSessionID: "root", Root: "root"}, "b"),
		line(t, 2, &events.SessionLinked{SessionID: "b", IdentityID: "u"}, "b"), line(t, 3, asked("b", "1", "q"), "b"),
	}
	identity := func() string {
		var r export.TurnRow
		require.NoError(t, json.Unmarshal(turnsTable(t, export.JSONL, lines), &r))
		return identityOf(r)
	}
	require.Equal(t, "u", identity())
	lines = append(lines, line(t, 4, &events.SessionErased{SessionID: "root", ReceiptID: "r"}, "root"))
	require.Empty(t, identity())
}

func identityOf(r export.TurnRow) string {
	if r.IdentityID == nil {
		return ""
	}
	return *r.IdentityID
}
