package indextest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// Contract is what the index rests on in a store, whichever it is. open returns one that is empty. The suite of the
// index runs on the store in memory alone, since that keeps the same contract as the store of production.
func Contract(t *testing.T, open func(t testing.TB) index.Store) {
	for name, test := range map[string]func(*testing.T, index.Store){
		"collections are listed with their marks, and dropped":             listsCollections,
		"what is no collection is unavailable":                             missesCollections,
		"the alias follows the served collection":                          followsAlias,
		"objects are kept with all but their texts":                        keepsObjects,
		"vectors are kept as they are":                                     keepsVectors,
		"many objects are written, paged and deleted":                      keepsMany,
		"bare objects are those of a partition that wait for a vector":     selectsBare,
		"a deletion takes objects away, and from searches":                 deletes,
		"filters bound a search":                                           filters,
		"filters compare whole names":                                      filtersNames,
		"the score is the cosine of a half":                                scores,
		"a search among objects looks at no others":                        searchesAmong,
		"an object with a vector of another length is refused, not others": refusesLengths,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// Object returns the i-th of many objects, each with vectors of its own.
func Object(i int, identity string) index.Object {
	text := fmt.Sprintf("question number %d about %s", i, []string{"cats", "dogs", "taxes"}[i%3])
	return index.Object{
		ID:      uuid.NewSHA1(uuid.NameSpaceOID, []byte(text)),
		Session: fmt.Sprintf("s%d", i%7), Identity: identity,
		Partition: i % 2, StartSeq: uint64(i + 1), Version: 1, CreatedAt: time.Unix(int64(1000+i), 12345).UTC(),
		PipelineName: "a pipeline", Consultant: "a consultant", Repository: "a repository",
		Question: index.Half{
			Neutral: text, Digest: fmt.Sprint("q", i), Vector: embeddingstest.Vector(text, Dimensions),
		},
		Answer: index.Half{
			Neutral: "yes", Digest: fmt.Sprint("a", i), Vector: embeddingstest.Vector("yes "+text, Dimensions),
		},
	}
}

// created is the time of the first object of FourObjects.
var created = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

// FourObjects writes objects of two identities and two sessions each, a second apart, into a new collection.
func FourObjects(t testing.TB, s index.Store) (name string, ids []uuid.UUID) {
	t.Helper()
	var objects []index.Object
	for i, of := range [][2]string{{"ann", "a1"}, {"ann", "a2"}, {"bob", "b1"}, {"bob", "b2"}} {
		o := Object(i, of[0])
		o.Session, o.CreatedAt = of[1], created.Add(time.Duration(i)*time.Second)
		o.Question.Translated, o.Answer.Translated = "une question", "une réponse"
		objects, ids = append(objects, o), append(ids, o.ID)
	}
	return filled(t, s, objects...), ids
}

// filled makes a collection that holds objects.
func filled(t testing.TB, s index.Store, objects ...index.Object) (name string) {
	t.Helper()
	c := index.Collection{Name: index.Prefix + "a_000001", Mark: "the mark"}
	require.NoError(t, s.Create(t.Context(), c))
	require.NoError(t, s.Put(t.Context(), c.Name, objects))
	return c.Name
}

// objects returns the first of many objects.
func objects(n int) (out []index.Object) {
	for i := range n {
		out = append(out, Object(i, "ann"))
	}
	return out
}

func idsOf(objects []index.Object) (out []uuid.UUID) {
	for i := range objects {
		out = append(out, objects[i].ID)
	}
	return out
}

func turnsOf(hits []projections.Hit) (out []uuid.UUID) {
	for _, h := range hits {
		out = append(out, h.TurnID)
	}
	return out
}

// near searches the questions of a collection for the ten nearest to a vector, unless n says otherwise.
func near(t testing.TB, s index.Store, name string, n index.Near) []projections.Hit {
	t.Helper()
	n.Half, n.Limit = cmp.Or(n.Half, projections.QuestionHalf), cmp.Or(n.Limit, 10)
	return must.Get(s.Near(t.Context(), name, n))(t)
}

// byID returns what a collection has of some objects.
func byID(t testing.TB, s index.Store, name string, ids []uuid.UUID, vectors index.Vectors) []index.Object {
	t.Helper()
	return must.Get(s.ByID(t.Context(), name, ids, vectors))(t)
}

// page returns up to ten objects of a collection.
func page(t testing.TB, s index.Store, name string) []index.Object {
	t.Helper()
	return must.Get(s.Page(t.Context(), name, uuid.Nil, 10))(t)
}

func listsCollections(t *testing.T, s index.Store) {
	all := must.Get(s.List(t.Context()))(t)
	require.Empty(t, all)
	one := index.Collection{Name: index.Prefix + "f_000001", Mark: "the mark"}
	two := index.Collection{Name: index.Prefix + "f_000002", Mark: "the second"}
	require.NoError(t, s.Create(t.Context(), one))
	require.NoError(t, s.Create(t.Context(), two))
	require.ErrorIs(t, s.Create(t.Context(), one), projections.ErrUnavailable, "it is there")
	foreign := index.Collection{Name: "Foreign", Mark: "of somebody else"}
	require.NoError(t, s.Create(t.Context(), foreign))
	all = must.Get(s.List(t.Context()))(t)
	require.ElementsMatch(t, []index.Collection{one, two}, all, "others are none of the index")
	for range 2 {
		require.NoError(t, s.Drop(t.Context(), one.Name))
		require.NoError(t, s.Drop(t.Context(), foreign.Name))
	}
	all = must.Get(s.List(t.Context()))(t)
	require.Equal(t, []index.Collection{two}, all)
}

func missesCollections(t *testing.T, s index.Store) {
	const name = index.Prefix + "gone_000001"
	require.NoError(t, s.Put(t.Context(), name, nil))
	require.ErrorIs(t, s.Put(t.Context(), name, objects(2)), projections.ErrUnavailable)
	require.ErrorIs(t, s.Serve(t.Context(), name), projections.ErrUnavailable)
	must.Fail(s.Page(t.Context(), name, uuid.Nil, 10))(t, projections.ErrUnavailable)
	must.Fail(s.ByID(t.Context(), name, idsOf(objects(2)), index.WithVectors))(t, projections.ErrUnavailable)
	must.Fail(s.Near(t.Context(), name, Near("question")))(t, projections.ErrUnavailable)
	require.ErrorIs(t, s.Delete(t.Context(), name, idsOf(objects(2))), projections.ErrUnavailable)
	require.Empty(t, must.Get(s.List(t.Context()))(t))
}

func followsAlias(t *testing.T, s index.Store) {
	first, ids := FourObjects(t, s)
	second := index.Collection{Name: index.Prefix + "a_000002", Mark: "the second"}
	require.NoError(t, s.Create(t.Context(), second))
	require.NoError(t, s.Serve(t.Context(), first))
	require.ElementsMatch(t, ids, idsOf(page(t, s, index.Alias)))
	require.NoError(t, s.Serve(t.Context(), second.Name))
	require.Empty(t, page(t, s, index.Alias))
}

func keepsObjects(t *testing.T, s index.Store) {
	all := objects(3)
	all[1].CreatedAt, all[1].Answer, all[1].Identity = time.Time{}, index.Half{}, ""
	all[1].PipelineName, all[1].Consultant, all[1].Repository = "", "", ""
	name := filled(t, s, all...)
	all[2].Version, all[2].Session = 2, "another"
	require.NoError(t, s.Put(t.Context(), name, all[2:]), "over what is there")
	want := slices.Clone(all)
	for i := range want {
		for _, h := range []*index.Half{&want[i].Question, &want[i].Answer} {
			*h = index.Half{Digest: h.Digest}
		}
	}
	require.ElementsMatch(t, want, byID(t, s, name, append(idsOf(all), uuid.New()), index.WithoutVectors))
	require.ElementsMatch(t, want, page(t, s, name))
}

func keepsVectors(t *testing.T, s index.Store) {
	all := objects(4)
	all[3].Answer.Vector = nil
	name := filled(t, s, all...)
	got := byID(t, s, name, idsOf(all), index.WithVectors)
	require.Len(t, got, 4)
	for _, o := range got {
		was := all[o.StartSeq-1]
		require.Equal(t, was.Question.Vector, o.Question.Vector)
		require.Equal(t, was.Answer.Vector, o.Answer.Vector)
	}
}

// keepsMany: more objects than a store takes by one call.
func keepsMany(t *testing.T, s index.Store) {
	const many, size = 1201, 500
	all := objects(many)
	name := filled(t, s, all...)
	var seen []uuid.UUID
	for after := uuid.Nil; ; {
		some := must.Get(s.Page(t.Context(), name, after, size))(t)
		seen = append(seen, idsOf(some)...)
		if len(some) < size {
			break
		}
		require.Len(t, some, size)
		after = some[size-1].ID
	}
	require.ElementsMatch(t, idsOf(all), seen)
	some, err := s.Page(t.Context(), name, uuid.New(), size)
	require.NoError(t, err, "after an object that is not there")
	require.Subset(t, seen, idsOf(some))
	require.Len(t, byID(t, s, name, idsOf(all), index.WithoutVectors), many)
	require.NoError(t, s.Delete(t.Context(), name, idsOf(all)))
	require.Empty(t, page(t, s, name))
}

func selectsBare(t *testing.T, s index.Store) {
	all := objects(8)
	all[1].Answer.Vector, all[3].Question.Vector = nil, nil // wait
	all[5].Answer.Vector, all[5].Answer.Refused = nil, true // never gets one
	all[7].Answer.Vector, all[7].Answer.Digest = nil, ""    // needs none
	name := filled(t, s, all...)
	bare := func(partition, limit int) []uuid.UUID {
		return idsOf(must.Get(s.Bare(t.Context(), name, partition, limit))(t))
	}
	require.ElementsMatch(t, []uuid.UUID{all[1].ID, all[3].ID}, bare(1, 10))
	require.Len(t, bare(1, 1), 1)
	require.Empty(t, bare(0, 10), "of another partition")
	all[1].Answer.Vector = all[0].Answer.Vector
	require.NoError(t, s.Put(t.Context(), name, all[1:2]))
	require.Equal(t, []uuid.UUID{all[3].ID}, bare(1, 10))
}

func deletes(t *testing.T, s index.Store) {
	all := objects(5)
	name := filled(t, s, all...)
	there := func() []uuid.UUID { return idsOf(byID(t, s, name, idsOf(all), index.WithoutVectors)) }
	require.NoError(t, s.Delete(t.Context(), name, []uuid.UUID{all[2].ID, uuid.New()}))
	require.ElementsMatch(t, idsOf(slices.Delete(slices.Clone(all), 2, 3)), there())
	found := near(t, s, name, index.Near{Vector: all[2].Question.Vector})
	require.ElementsMatch(t, there(), turnsOf(found), "and no search finds it")
	require.NoError(t, s.Delete(t.Context(), name, idsOf(all)))
	require.Empty(t, there())
}

// filters: each bounds a search by itself; a period begins with its first moment, and ends before its last.
func filters(t *testing.T, s index.Store) {
	name, ids := FourObjects(t, s)
	second := created.Add(time.Second)
	for what, c := range map[string]struct {
		filter index.Filter
		want   []uuid.UUID
	}{
		"none":                {want: ids},
		"identity":            {index.Filter{IdentityID: "ann"}, ids[:2]},
		"session":             {index.Filter{SessionID: "b1"}, ids[2:3]},
		"since":               {index.Filter{Period: projections.Period{Since: second}}, ids[1:]},
		"since right behind":  {index.Filter{Period: projections.Period{Since: second.Add(1)}}, ids[2:]},
		"until":               {index.Filter{Period: projections.Period{Until: second}}, ids[:1]},
		"until right behind":  {index.Filter{Period: projections.Period{Until: second.Add(1)}}, ids[:2]},
		"another's session":   {index.Filter{IdentityID: "ann", SessionID: "b1"}, nil},
		"identity in a while": {index.Filter{IdentityID: "bob", Period: projections.Period{Until: created}}, nil},
		"all of them": {index.Filter{
			IdentityID: "ann", SessionID: "a2", Period: projections.Period{Since: second, Until: second.Add(1)},
		}, ids[1:2]},
	} {
		n := Near("question")
		n.Filter = c.filter
		require.ElementsMatch(t, c.want, turnsOf(near(t, s, name, n)), what)
	}
}

// filtersNames: names are compared as they are written.
func filtersNames(t *testing.T, s index.Store) {
	names := []string{"ann", "Ann", "ann b", "ann-2", "ánn", "the", "*"}
	var all []index.Object
	for i, name := range names {
		o := Object(i, name)
		o.Session = "session of " + name
		all = append(all, o)
	}
	name := filled(t, s, all...)
	for i, of := range names {
		for _, f := range []index.Filter{{IdentityID: of}, {SessionID: "session of " + of}} {
			found := near(t, s, name, index.Near{Vector: all[0].Question.Vector, Filter: f})
			require.Len(t, found, 1, of)
			require.Equal(t, []any{all[i].ID, of, "session of " + of},
				[]any{found[0].TurnID, found[0].IdentityID, found[0].SessionID})
		}
	}
}

// scores: of the half that was asked for, the nearest first.
func scores(t *testing.T, s index.Store) {
	name, ids := FourObjects(t, s)
	v := embeddingstest.Vector("number cats yes", Dimensions)
	for half, text := range map[projections.Half]string{
		projections.QuestionHalf: Object(0, "").Question.Neutral,
		projections.AnswerHalf:   "yes " + Object(0, "").Question.Neutral,
	} {
		want := 0.0
		for i, x := range embeddingstest.Vector(text, Dimensions) {
			want += float64(x) * float64(v[i])
		}
		all := near(t, s, name, index.Near{Half: half, Vector: v})
		require.Len(t, all, 4)
		for i, h := range all {
			require.Equal(t, half, h.Half)
			if h.TurnID == ids[0] {
				require.InDelta(t, want, h.Score, 1e-5, half)
			}
			if i > 0 {
				require.LessOrEqual(t, h.Score, all[i-1].Score, "the nearest first")
			}
		}
		first := near(t, s, name, index.Near{Half: half, Vector: v, Limit: 2})
		require.Equal(t, turnsOf(all[:2]), turnsOf(first))
	}
	nearest := near(t, s, name, index.Near{Vector: Object(2, "").Question.Vector, Limit: 1})
	require.Equal(t, ids[2], nearest[0].TurnID)
	require.InDelta(t, 1, nearest[0].Score, 1e-5)
}

// searchesAmong: of the objects that are asked for, those come that have a vector of the half.
func searchesAmong(t *testing.T, s index.Store) {
	all := objects(20)
	all[3].Question.Vector = nil
	name := filled(t, s, all...)
	n := index.Near{Vector: all[0].Question.Vector, Limit: 20}
	require.Len(t, near(t, s, name, n), 19, "a half without a vector is near to nothing")
	n.Among = append(idsOf(all[2:5]), uuid.New())
	require.ElementsMatch(t, []uuid.UUID{all[2].ID, all[4].ID}, turnsOf(near(t, s, name, n)))
}

// refusesLengths: the first vector sets the length of all.
func refusesLengths(t *testing.T, s index.Store) {
	name := filled(t, s, Object(4, "ann"))
	all := objects(3)
	all[1].Question.Vector = all[1].Question.Vector[:Dimensions/2]
	err := s.Put(t.Context(), name, all)
	var refused *index.Refused
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, projections.ErrUnavailable)
	require.Equal(t, []uuid.UUID{all[1].ID}, refused.IDs)
	require.NotContains(t, err.Error(), "question")
	require.Len(t, byID(t, s, name, []uuid.UUID{all[0].ID, all[2].ID}, index.WithVectors), 2)
	must.Fail(s.Near(t.Context(), name, index.Near{
		Half: projections.QuestionHalf, Vector: all[1].Question.Vector, Limit: 10,
	}))(t, projections.ErrUnavailable)
}
