package events_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
)

func TestToken(t *testing.T) {
	t.Parallel()
	t.Run("is the id itself where that is a plain token", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "Ab-9_z", events.Token("Ab-9_z"))
		require.Equal(t, strings.Repeat("x", 128), events.Token(strings.Repeat("x", 128)))
	})
	t.Run("is ~ and base64url elsewhere", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "~YS5i", events.Token("a.b"))
		require.Equal(t, "~fg", events.Token("~"))
		require.Equal(t, "~Pz8-", events.Token("??>"))
		require.Equal(t, "~"+strings.Repeat("eHh4", 43), events.Token(strings.Repeat("x", 129)))
	})
	t.Run("is injective and ParseToken its inverse", func(t *testing.T) {
		t.Parallel()
		ids := rapid.StringOfN(rapid.RuneFrom([]rune("ab~-_.* >/ü\x00")), 0, 8, -1)
		rapid.Check(t, func(t *rapid.T) {
			a, b := ids.Draw(t, "a"), ids.Draw(t, "b")
			if (events.Token(a) == events.Token(b)) != (a == b) {
				t.Fatalf("%q and %q: tokens %q and %q", a, b, events.Token(a), events.Token(b))
			}
			back, err := events.ParseToken(events.Token(a))
			if err != nil || back != a {
				t.Fatalf("%q comes back as %q, %v", a, back, err)
			}
		})
	})
	for _, token := range []string{"", "a.b", "a b", "~YQ", "~YS5i=", "~YS5", "~YS5j\n", "~!", strings.Repeat("x", 129),
		"*", ">", "~YS5ic"} {
		t.Run("ParseToken refuses what Token never gives: "+token, func(t *testing.T) {
			t.Parallel()
			must.Fail(events.ParseToken(token))(t, events.ErrSubject)
		})
	}
}

func TestParseSubject(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"s1", "a.b", "~", "sessïon 1", strings.Repeat("x", 256)} {
		t.Run("takes apart the subjects of "+events.Token(id)[:2], func(t *testing.T) {
			t.Parallel()
			got, identity := must.Two(events.ParseSubject(events.SessionSubject(id)))(t)
			require.Equal(t, id, got)
			require.False(t, identity)
			got, identity = must.Two(events.ParseSubject(events.IdentitySubject(id)))(t)
			require.Equal(t, id, got)
			require.True(t, identity)
		})
	}
	b := strconv.Itoa(events.Bucket("s1"))
	for _, s := range []string{
		"", "turns", "turns." + b, "turns." + b + ".", "turns.0" + b + ".s1", "turns.+" + b + ".s1", "turns.256.s1",
		"turns." + b + ".s1.x",
		"Turns." + b + ".s1", "orders." + b + ".s1", "turns.." + b + ".s1", "turns." + b + ".*", "turns." + b + ".s2",
	} {
		t.Run("refuses "+s, func(t *testing.T) {
			t.Parallel()
			_, _, err := events.ParseSubject(s)
			require.ErrorIs(t, err, events.ErrSubject)
		})
	}
}

// The server's own mapping is the judge: pipelines may leave the bucket to it.
func TestBucketIsThePartitionOfNATS(t *testing.T) {
	t.Parallel()
	srv := must.Get(server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true}))(t)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(10*time.Second))
	require.NoError(t, srv.GlobalAccount().AddMapping("in.*", "turns.{{partition(256,1)}}.{{wildcard(1)}}"))
	conn := must.Get(nats.Connect("", nats.InProcessServer(srv)))(t)
	t.Cleanup(conn.Close)
	sub := must.Get(conn.SubscribeSync("turns.>"))(t)

	seed := rand.Uint64()
	ids := someIDs(rand.New(rand.NewPCG(seed, 1)), 600)
	for _, id := range ids {
		require.NoError(t, conn.Publish("in."+events.Token(id), nil))
	}
	used := map[int]bool{}
	for _, id := range ids {
		msg := must.Get(sub.NextMsg(10 * time.Second))(t)
		require.Equal(t, msg.Subject, events.SessionSubject(id), "seed %d, id %q", seed, id)
		used[events.Bucket(events.Token(id))] = true
	}
	require.Greater(t, len(used), 200, "the ids must reach most buckets")
}

func someIDs(r *rand.Rand, n int) []string {
	const letters = "abcXYZ019-_.~ ü€/*>"
	runes := []rune(letters)
	ids := make([]string, n)
	for i := range ids {
		var b strings.Builder
		for range 1 + r.IntN(40) {
			b.WriteRune(runes[r.IntN(len(runes))])
		}
		ids[i] = b.String()
	}
	return ids
}

func TestStreamSubjects(t *testing.T) {
	t.Parallel()
	for p := 1; p <= events.Buckets; p *= 2 {
		t.Run(fmt.Sprintf("of %d streams take each bucket once, where Partition says", p), func(t *testing.T) {
			t.Parallel()
			owner := map[string]int{}
			for k := range p {
				for _, s := range events.StreamSubjects(k, p) {
					require.NotContains(t, owner, s, "captured twice")
					owner[s] = k
				}
			}
			for b, id := range idOfBucket(t) {
				for _, subject := range []string{events.SessionSubject(id), events.IdentitySubject(id)} {
					k, n := takers(owner, subject)
					require.Equal(t, 1, n, "bucket %d of %d streams", b, p)
					require.Equal(t, events.Partition(id, p), k)
					require.Equal(t, b*p/events.Buckets, k, "contiguous ranges")
				}
			}
			require.Equal(t, "TURNS-"+strconv.Itoa(p-1), events.StreamName(p-1))
		})
	}
}

// takers counts the filters that match a subject and gives the stream of the last.
func takers(owner map[string]int, subject string) (stream, n int) {
	parts := strings.Split(subject, ".")
	for _, filter := range []string{parts[0] + "." + parts[1] + ".*", parts[0] + ".*.*", parts[0] + ".>", subject} {
		if k, ok := owner[filter]; ok {
			stream, n = k, n+1
		}
	}
	return stream, n
}

// idOfBucket finds an id for each bucket.
func idOfBucket(t *testing.T) map[int]string {
	t.Helper()
	out := map[int]string{}
	for i := range 100 * events.Buckets {
		id := "s" + strconv.Itoa(i)
		out[events.Bucket(id)] = id
	}
	require.Len(t, out, events.Buckets)
	return out
}
