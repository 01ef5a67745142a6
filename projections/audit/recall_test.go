package audit_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
)

func said(session, request, question, answer string) []events.Fact {
	s, f := started(session, request), finalized(session, request)
	s.QuestionNeutral, f.AnswerNeutral = question, answer
	return []events.Fact{s, f}
}

func TestRecallFindsWhatAnIdentitySaid(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s1", "u"), linked("s2", "u"), linked("s3", "other"))
	log.add(said("s1", "r1", "My favourite colour is teal.", "Noted.")...)
	log.add(said("s1", "r2", "I have two cats, Ada and Bob.", "Lovely cats!")...)
	log.add(said("s2", "r3", "Was für ein Wetter in Gdańsk?", "Regen.")...)
	log.add(said("s2", "r4", "My cats are called Cleo and Dot.", "Noted: the cats.")...)
	log.add(said("s2", "r7", "Am I happier in Łódź, hoping for relational databases?", "Yes, 42-7.")...)
	log.add(said("s3", "r5", "The cat of another.", "Whose cat?")...)
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
		got, err := a.Recall(t.Context(), "u", query, 5)
		require.NoError(t, err, query)
		var questions []string
		for _, r := range got {
			questions = append(questions, r.Question)
		}
		require.Equal(t, want, questions, query)
	}
	got, err := a.Recall(t.Context(), "nobody", "cat", 5)
	require.NoError(t, err)
	require.Empty(t, got)
}

// A search is bounded by what is searched, not by what there is.
func TestRecallOfVeryLongTexts(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"))
	long := ""
	for i := range 40_000 {
		long += fmt.Sprint(" word", i)
	}
	log.add(said("s", "r", "first things"+long, long)...)
	a := filled(t, log, 7)
	got, err := a.Recall(t.Context(), "u", "first"+long, 5)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Len(t, got[0].Question, 8000)
}
