package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
)

func exchange(session, request, question, answer string) []events.Fact {
	s, f := started(session, request), finalized(session, request)
	s.QuestionNeutral, f.AnswerNeutral = question, answer
	return []events.Fact{s, f}
}

//conformance:h5
func TestRecallFindsWhatAnIdentitySaid(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s1", "u"), linked("s2", "u"), linked("s3", "other"))
	log.add(exchange("s1", "r1", "My favourite colour is teal.", "Noted.")...)
	log.add(exchange("s1", "r2", "I have two cats, Ada and Bob.", "Lovely cats!")...)
	log.add(exchange("s2", "r3", "Was für ein Wetter in Gdańsk?", "Regen.")...)
	log.add(exchange("s2", "r4", "My cats are called Cleo and Dot.", "Noted: the cats.")...)
	log.add(exchange("s2", "r7", "Am I happier in Łódź, hoping for relational databases?", "Yes, 42-7.")...)
	log.add(exchange("s3", "r5", "The cat of another.", "Whose cat?")...)
	pending := started("s2", "r6")
	pending.QuestionNeutral = "what do cats eat"
	log.add(pending)
	log.redact("s1", id("s1", "r2"))
	a := filled(t, log, 7)
	for query, want := range map[string][]string{
		"which COLOUR do I like?":    {"My favourite colour is teal."},
		"what is my cat called":      {"My cats are called Cleo and Dot."},
		"a\x00 teal\xff":             {"My favourite colour is teal."},
		"Gdańsk":                     {"Was für ein Wetter in Gdańsk?"},
		"I hope":                     {"Am I happier in Łódź, hoping for relational databases?"},
		"Łódź":                       {"Am I happier in Łódź, hoping for relational databases?"},
		"the relation of a database": {"Am I happier in Łódź, hoping for relational databases?"},
		"42-7":                       {"Am I happier in Łódź, hoping for relational databases?"},
		"who is the":                 nil,
		"":                           nil,
		"':* & ! | <-> \\ \"'\x01":   nil,
	} {
		got, _, err := a.Recall(t.Context(), "u", query, 5)
		require.NoError(t, err, query)
		var questions []string
		for _, r := range got {
			questions = append(questions, r.Question)
		}
		require.Equal(t, want, questions, query)
	}
	found, _ := must.Two(a.Recall(t.Context(), "nobody", "cat", 5))(t)
	require.Empty(t, found)
}

// Not every language puts spaces between its words.
func TestRecallWithoutSpaces(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"))
	for i, turn := range [][2]string{
		{"我最喜欢的颜色是青绿色。", "好的，我记住了。"},
		{"我住在上海，家里有两只猫。", "它们叫什么名字？"},
		{"我的飞机票是几点的？", "明天早上八点。"},
		{"私の猫の名前はミケです。", "かわいい名前ですね。"},
		{"京都で一番好きなラーメン屋は「たかばし」です。", "今度行ってみたいです。"},
		{"会議は木曜日の午後三時です。", "カレンダーに入れました。"},
		{"แมวของฉันชื่อส้มโอ", "น่ารักมากครับ"},
		{"ฉันทำงานที่โรงพยาบาลในเชียงใหม่", "รับทราบครับ"},
		{"우리 고양이는 나비라고 해요.", "귀여운 이름이네요."},
		{"저는 부산에서 태어났어요.", "부산은 아름다운 도시죠."},
		{"仕事ではGoでframeworkなしのAPIを書いています。", "なるほど。"},
		{"My cats are called Cleo and Dot.", "Noted."},
	} {
		log.add(exchange("s", fmt.Sprint("r", i), turn[0], turn[1])...)
	}
	a := filled(t, log, 7)
	for query, want := range map[string]string{
		"你还记得我喜欢什么颜色吗":            "我最喜欢的颜色是青绿色。",
		"上海的天气怎么样？":               "我住在上海，家里有两只猫。",
		"飞机几点起飞":                  "我的飞机票是几点的？",
		"猫は何という名前でしたか？":           "私の猫の名前はミケです。",
		"おすすめのラーメンは？":             "京都で一番好きなラーメン屋は「たかばし」です。",
		"会議はいつ？":                  "会議は木曜日の午後三時です。",
		"แมวชื่ออะไร":             "แมวของฉันชื่อส้มโอ",
		"โรงพยาบาลอยู่ที่ไหน":     "ฉันทำงานที่โรงพยาบาลในเชียงใหม่",
		"고양이 이름이 뭐였지?":            "우리 고양이는 나비라고 해요.",
		"내가 어디서 태어났지? 부산이었나?":     "저는 부산에서 태어났어요.",
		"what are my cats called": "My cats are called Cleo and Dot.",
		"Cleoは犬ですか":               "My cats are called Cleo and Dot.",
		"which framework?":        "仕事ではGoでframeworkなしのAPIを書いています。",
	} {
		got, _, err := a.Recall(t.Context(), "u", query, 5)
		require.NoError(t, err, query)
		require.NotEmpty(t, got, query)
		require.Equal(t, want, got[0].Question, "%s: %v", query, got)
	}
	for _, query := range []string{"火星", "ไดโนเสาร์", "の", "공룡"} {
		got, _, err := a.Recall(t.Context(), "u", query, 5)
		require.NoError(t, err, query)
		require.Empty(t, got, query)
	}
}

// A search is bounded by what is searched, not by what there is.
func TestRecallOfVeryLongTexts(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"))
	var text strings.Builder
	for i := range 40_000 {
		fmt.Fprint(&text, " word", i)
	}
	long := text.String()
	log.add(exchange("s", "r", "first things"+long, long)...)
	a := filled(t, log, 7)
	got, _ := must.Two(a.Recall(t.Context(), "u", "first"+long, 5))(t)
	require.Len(t, got, 1)
	require.Len(t, got[0].Question, 8000)
}
