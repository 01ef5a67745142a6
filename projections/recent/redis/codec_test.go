package redis_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections/recent/redis"
)

func TestRecordsComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := func(label string) string { return rapid.String().Draw(rt, label) }
		number := func(label string) uint64 { return rapid.Uint64().Draw(rt, label) }
		raws := rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage("null"),
			json.RawMessage("[ 1e400,\"\u2028\" ]")})
		raw := func(label string) json.RawMessage { return raws.Draw(rt, label) }
		at := func(label string) time.Time {
			seconds := rapid.Int64Range(-62135596800, 253402300799).Draw(rt, label)
			return time.Unix(seconds, rapid.Int64Range(0, 999999999).Draw(rt, "ns")).UTC()
		}
		q := &events.Question{
			PipelineName: text("p"), Consultant: text("c"), Repository: text("r"),
			TranslateChat: rapid.Bool().Draw(rt, "t"), QuestionNeutral: text("n"), QuestionTranslated: text("q"),
			QuestionMessages: raw("m"), Metadata: raw("d"),
		}
		turn := &conversation.Turn{
			ID: uuid.New(), RequestID: text("id"), Version: rapid.IntRange(1, 1000).Draw(rt, "v"),
			Place: number("place"), Started: number("started"), CreatedAt: at("created"),
			TranslateChat: q.TranslateChat, Question: q,
		}
		if rapid.Bool().Draw(rt, "corrects") {
			turn.Replaces = uuid.New()
		}
		if rapid.Bool().Draw(rt, "finalized") {
			turn.Status, turn.Final, turn.FinalizedAt = conversation.Finalized, number("f"), at("fa")
			turn.AnswerMetadata = raw("am")
			turn.Answer = &events.Answer{AnswerNeutral: text("a"), AnswerTranslated: text("at"),
				AnswerTranslatedIsFallback: rapid.Bool().Draw(rt, "fb"), AnswerMessages: raw("ams")}
		}
		count := func(label string) int { return rapid.IntRange(-1<<40, 1<<40).Draw(rt, label) }
		head := conversation.Head{
			Identity: text("i"), LinkedAt: number("l"), Boundary: number("b"), ResetAt: number("r"),
			Erased: number("e"), CreatedAt: at("ca"), LastActive: at("la"),
			Counts: conversation.Counts{Finalized: count("1"), Pending: count("2"), ShownFinalized: count("3"),
				ShownPending: count("4")},
		}
		if rapid.Bool().Draw(rt, "described") {
			kinds := []events.SessionKind{"", events.KindConversation, events.KindResponse}
			head.HeldDescription = conversation.DescribedBy(conversation.Description{DescribedAt: number("at"),
				Title: text("title"), Metadata: text("metadata"), Kind: rapid.SampledFrom(kinds).Draw(rt, "kind")})
		}
		if rapid.Bool().Draw(rt, "forked") {
			head.HeldDescription = head.ForkedBy(conversation.Fork{ForkedAt: max(number("fork"), 1),
				RequestID: text("fr"), From: text("ff"), Root: text("fo"), Lineage: text("fl")})
		}
		back, backHead := must.Two(redis.Roundtrip(turn, head))(rt)
		require.Equal(rt, turn, back)
		require.Equal(rt, head, backHead)
	})
}

// FuzzRecord reads anything: an error, never a panic or an endless loop.
func FuzzRecord(f *testing.F) {
	for _, s := range []string{"", "\x01", "\x01p", "\x02f0123456789abcdef",
		"\x01f0123456789abcdef\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, record string) { _ = redis.ReadRecord(record) })
}
