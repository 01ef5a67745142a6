package audit_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/audit/words"
)

// spoken are the texts that are said and asked for.
var spoken = []string{
	"tap", "Tap", "washer", "of the", "école", "学校", "学校に行く", "校", "ไทย", "mother-in-law", "law", "Cafe\u0301", "👍",
}

// TestSearchesAreThoseOfAModel compares searches, through all ways to find turns, with a plain look at each turn.
func TestSearchesAreThoseOfAModel(t *testing.T) {
	t.Parallel()
	read := &current{newJournal()}
	key := words.NewKey("k")
	a := openWith(t, audit.Config{URL: pg.URL(t), Log: read, SearchKey: key})
	rapid.Check(t, func(t *rapid.T) {
		log := said(t)
		read.journal = log
		a.empty()
		claim(t, log, a).all(rapid.IntRange(1, 30).Draw(t, "batch"))
		for range 8 {
			m := searchModel{key: key, window: rapid.IntRange(1, 6).Draw(t, "window"), f: askedOf(t, log)}
			a.Narrow(m.window, rapid.IntRange(1, 4).Draw(t, "first"), rapid.IntRange(4, 12).Draw(t, "all"),
				rapid.IntRange(4, 8).Draw(t, "own"))
			require.Equal(t, m.hits(log), searchAll(t, a.Audit, m.f, rapid.IntRange(1, 7).Draw(t, "limit")), m.f)
		}
	})
}

// said is a log of a few sessions, some of whose turns are at the same microsecond.
func said(t *rapid.T) *journal {
	log := newJournal()
	text := func() string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(spoken), 1, 6).Draw(t, "text"), " ")
	}
	log.add(linked("a", "ada"), linked("b", "ada"), linked("c", "bob"))
	for n := range rapid.IntRange(5, 40).Draw(t, "turns") {
		session, request := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "session"), fmt.Sprint(n)
		if rapid.Bool().Draw(t, "at once") {
			log.pass(-time.Second)
		}
		before := log.state(session)
		if before.Erased != 0 {
			continue
		}
		q := events.Question{QuestionNeutral: text()}
		if rapid.Bool().Draw(t, "translated") {
			q.QuestionTranslated = text()
		}
		log.add(&events.TurnStarted{TurnID: id(session, request), SessionID: session, RequestID: request, Question: q})
		answer := events.Answer{AnswerNeutral: text(), AnswerTranslated: text()}
		switch rapid.IntRange(0, 9).Draw(t, "then") {
		case 0:
			log.redact(session, id(session, request))
		case 1:
			log.add(&events.TurnFinalized{TurnID: id(session, request), SessionID: session, Answer: answer},
				&events.TurnCorrected{TurnID: id(session, "c"+request), SessionID: session, RequestID: "c" + request,
					ReplacesTurnID: id(session, request), Question: q, Answer: events.Answer{AnswerNeutral: text()}})
		case 2, 3:
		case 4:
			if n%7 == 0 {
				log.add(erased(session))
			}
		default:
			log.add(&events.TurnFinalized{TurnID: id(session, request), SessionID: session, Answer: answer})
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "bob goes") == 0 {
		log.add(&events.IdentityErased{IdentityID: "bob", ReceiptID: "x"})
	}
	if rapid.Bool().Draw(t, "d comes") && log.state("d").Erased == 0 {
		log.add(linked("d", "carol"))
	}
	return log
}

// askedOf is any search of a log.
func askedOf(t *rapid.T, log *journal) (f projections.SearchFilter) {
	// The one wanted word makes it a search.
	parts := []string{rapid.SampledFrom(append(slices.Clone(spoken), "wash*", "caf*")).Draw(t, "word")}
	for _, word := range rapid.SliceOfN(rapid.SampledFrom(spoken), 0, 2).Draw(t, "more") {
		parts = append(parts, rapid.SampledFrom([]string{word, `"` + word + ` tap"`, "-" + word}).Draw(t, "part"))
	}
	f.Query = strings.Join(parts, " ")
	one := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	f.IdentityID = one("identity", "", "", "ada", "bob", "carol", "nobody")
	f.SessionID = one("in session", "", "", "", "a", "c")
	f.In = projections.Half(one("in", "", "", "question", "answer"))
	f.Language = one("language", "", "", "neutral", "translated")
	f.MinScore = rapid.SampledFrom([]float64{0, 0, 0.3, 0.7}).Draw(t, "score")
	moment := func(label string) time.Time {
		at := log.events[rapid.IntRange(0, len(log.events)-1).Draw(t, label)].Time
		return at.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, label)))
	}
	if one("bounds", "none", "since", "until") == "since" {
		f.Since = moment("since")
	}
	if one("bounds", "none", "since", "until") == "until" {
		f.Until = moment("until")
	}
	return f
}

// searchModel finds what a search must find.
type searchModel struct {
	key    words.Key
	window int
	f      projections.SearchFilter
}

// candidate is a turn whose terms match, with the hit if its text does.
type candidate struct {
	projections.Hit
	found bool
}

// hits ranks the newest candidates together, then those before, and so on.
func (m searchModel) hits(log *journal) (out []projections.Hit) {
	for chunk := range slices.Chunk(m.candidates(log), m.window) {
		chunk = slices.DeleteFunc(chunk, func(c candidate) bool { return !c.found })
		slices.SortStableFunc(chunk, func(x, y candidate) int { return cmp.Compare(y.Score, x.Score) })
		for _, c := range chunk {
			out = append(out, c.Hit)
		}
	}
	return out
}

func (m searchModel) candidates(log *journal) (out []candidate) {
	gone := map[string]bool{}
	for _, e := range log.events {
		if f, ok := e.Fact.(*events.IdentityErased); ok {
			gone[f.IdentityID] = true
		}
	}
	for _, session := range []string{"a", "b", "c", "d"} {
		s := log.state(session)
		if s.Identity == "" || s.Erased != 0 || gone[s.Identity] {
			continue
		}
		for _, turn := range s.Turns {
			if c, ok := m.candidate(s, turn); ok {
				out = append(out, c)
			}
		}
	}
	slices.SortFunc(out, func(x, y candidate) int {
		return cmp.Or(y.CreatedAt.Truncate(time.Microsecond).Compare(x.CreatedAt.Truncate(time.Microsecond)),
			slices.Compare(y.TurnID[:], x.TurnID[:]))
	})
	return out
}

func (m searchModel) candidate(s *conversation.State, turn *conversation.Turn) (c candidate, ok bool) {
	f := m.f
	switch {
	case turn.Status != conversation.Pending && turn.Status != conversation.Finalized,
		f.IdentityID != "" && f.IdentityID != s.Identity, f.SessionID != "" && f.SessionID != s.SessionID,
		turn.CreatedAt.Before(f.Since), !f.Until.IsZero() && !turn.CreatedAt.Before(f.Until):
		return c, false
	}
	c.Hit = projections.Hit{SessionID: s.SessionID, IdentityID: s.Identity, TurnID: turn.ID, CreatedAt: turn.CreatedAt,
		Position: events.Position{Seq: turn.Started}}
	halves := map[projections.Half][]string{
		projections.QuestionHalf: {turn.Question.QuestionNeutral, turn.Question.QuestionTranslated}}
	if turn.Answer != nil {
		halves[projections.AnswerHalf] = []string{turn.Answer.AnswerNeutral, turn.Answer.AnswerTranslated}
	}
	query := words.Parse(f.Query, nil)
	for _, half := range []projections.Half{projections.QuestionHalf, projections.AnswerHalf} {
		texts := halves[half]
		if texts == nil || f.In != "" && f.In != half {
			continue
		}
		terms := m.key.Terms(nil, texts...)
		ok = ok || !slices.ContainsFunc(query.Terms(&m.key), func(t int32) bool { return !slices.Contains(terms, t) })
		for i, language := range []string{"neutral", "translated"} {
			found, matches := query.Match(texts[i], nil)
			if matches && (f.Language == "" || f.Language == language) && found.Score > c.Score {
				c.Half, c.Score, c.Snippet = half, found.Score, found.Snippet()
			}
		}
	}
	c.found = c.Score > 0 && c.Score >= f.MinScore
	return c, ok
}
