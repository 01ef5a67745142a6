package redis_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections/recent/redis"
)

func TestRecordsComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text, number := rapid.String(), rapid.Uint64()
		raw := rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage("null"),
			json.RawMessage("[ 1e400,\"\u2028\" ]")})
		at := rapid.Custom(func(rt *rapid.T) time.Time {
			return time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(rt, "s"), rapid.Int64Range(0,
				999999999).Draw(rt, "ns")).UTC()
		})
		q := &events.Question{
			PipelineName: text.Draw(rt, "p"), Consultant: text.Draw(rt, "c"), Repository: text.Draw(rt, "r"),
			TranslateChat:   rapid.Bool().Draw(rt, "t"),
			QuestionNeutral: text.Draw(rt, "n"), QuestionTranslated: text.Draw(rt, "q"), QuestionMessages: raw.Draw(rt,
				"m"), Metadata: raw.Draw(rt, "d"),
		}
		turn := &conversation.Turn{
			ID: uuid.New(), RequestID: text.Draw(rt, "id"), Version: rapid.IntRange(1, 1000).Draw(rt, "v"),
			Place:   number.Draw(rt, "place"),
			Started: number.Draw(rt, "started"), CreatedAt: at.Draw(rt, "created"), TranslateChat: q.TranslateChat,
			Question: q,
		}
		if rapid.Bool().Draw(rt, "corrects") {
			turn.Replaces = uuid.New()
		}
		if rapid.Bool().Draw(rt, "finalized") {
			turn.Status, turn.Final, turn.FinalizedAt, turn.AnswerMetadata = conversation.Finalized, number.Draw(rt,
				"f"), at.Draw(rt, "fa"), raw.Draw(rt, "am")
			turn.Answer = &events.Answer{
				AnswerNeutral: text.Draw(rt, "a"), AnswerTranslated: text.Draw(rt, "at"),
				AnswerTranslatedIsFallback: rapid.Bool().Draw(rt, "fb"), AnswerMessages: raw.Draw(rt, "ams"),
			}
		}
		count := rapid.IntRange(-1<<40, 1<<40)
		head := conversation.Head{
			Identity: text.Draw(rt, "i"), LinkedAt: number.Draw(rt, "l"), Boundary: number.Draw(rt, "b"),
			ResetAt: number.Draw(rt, "r"), Erased: number.Draw(rt, "e"),
			CreatedAt: at.Draw(rt, "ca"), LastActive: at.Draw(rt, "la"), ErasedAt: time.Time{},
			Counts: conversation.Counts{Finalized: count.Draw(rt, "1"), Pending: count.Draw(rt, "2"),
				ShownFinalized: count.Draw(rt, "3"), ShownPending: count.Draw(rt, "4")},
		}
		if rapid.Bool().Draw(rt, "described") {
			head.HeldDescription = conversation.DescribedBy(conversation.Description{DescribedAt: number.Draw(rt, "at"),
				Title: text.Draw(rt, "title"), Metadata: text.Draw(rt, "metadata"), Kind: rapid.SampledFrom(
					[]events.SessionKind{"", events.KindConversation, events.KindResponse}).Draw(rt, "kind")})
		}
		if rapid.Bool().Draw(rt, "forked") {
			head.HeldDescription = head.ForkedBy(conversation.Fork{ForkedAt: number.Filter(func(n uint64) bool {
				return n > 0
			}).Draw(rt, "fork"), RequestID: text.Draw(rt, "fr"), From: text.Draw(rt, "ff"), Root: text.Draw(rt, "fo"),
				Lineage: text.Draw(rt, "fl")})
		}
		back, backHead, err := redis.Roundtrip(turn, head)
		require.NoError(rt, err)
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
