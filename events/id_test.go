package events_test

import (
	"encoding/json"
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

// The expected ids were computed by Python: uuid.uuid5(namespace, session + "\x00" + request).
//
//conformance:h10
func TestTurnID(t *testing.T) {
	t.Parallel()
	t.Run("is UUIDv5 over session, 0x00, request", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "8e5bbb3e-1046-5e03-9fc8-02e783e544f1", events.TurnID("s1", "r1").String())
		require.Equal(t, "4e032699-5471-5add-b8af-cccaf1b18067", events.TurnID("sessïon/1", "req 1").String())
	})
	t.Run("keeps session and request apart", func(t *testing.T) {
		t.Parallel()
		require.NotEqual(t, events.TurnID("a", "bc"), events.TurnID("ab", "c"))
	})
}

func TestEventIDs(t *testing.T) {
	t.Parallel()
	t.Run("are derived from what the event states", func(t *testing.T) {
		t.Parallel()
		var got []string
		for _, f := range fullFacts() {
			got = append(got, f.EventID())
		}
		require.Equal(t, []string{
			"8e5bbb3e-1046-5e03-9fc8-02e783e544f1.started",
			"8e5bbb3e-1046-5e03-9fc8-02e783e544f1.finalized",
			pyPair["s1|alice@example.org"] + ".linked",
			pyPair["s1|c1"] + ".redacted",
			pyPair["s1|c1"] + ".corrected",
			pyPair["s1|7"] + ".reset",
			pyPair["s1|x1"] + ".erased",
			pyPair["s1|mallory|5f1c|7"] + ".link_refused",
			pyPair["alice@example.org|x2"] + ".identity_erased",
			pyPair["s1|x2|log"] + ".receipt",
			pyPair["s1|d2"] + ".described",
			pyPair["s2|s1"] + ".forked",
			pyPair["s1|f1"] + ".branched",
			pyPair["s1|m1"] + ".summarized",
			"8e5bbb3e-1046-5e03-9fc8-02e783e544f1.extended.e1#0",
			pyPair["s1|c1"] + ".pruned.p1",
			"8e5bbb3e-1046-5e03-9fc8-02e783e544f1.started",
		}, got)
	})
	t.Run("of an identity's receipt", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, pyPair["x2|log"]+".receipt", (&events.ErasureReceipt{IdentityID: "alice", ReceiptID: "x2",
			Place: "log"}).EventID())
	})
	t.Run("say nothing of a wording", func(t *testing.T) {
		t.Parallel()
		one := events.TurnStarted{TurnID: r1, Question: events.Question{QuestionNeutral: "one"}}
		two := events.TurnStarted{TurnID: r1, Question: events.Question{QuestionNeutral: "two"}}
		require.Equal(t, one.EventID(), two.EventID())
	})
}

func TestValidID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "...", "sessïon/1 x", strings.Repeat("x", 256), strings.Repeat("ü", 128)} {
		t.Run("takes "+events.Token(id), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, events.ValidID(id))
		})
	}
	for _, id := range []string{"", ".", "..", "a\nb", "a\x00", "a\x7f", "a\u0085b", "\xff", strings.Repeat("x", 257),
		strings.Repeat("ü", 129)} {
		t.Run("refuses "+events.Token(id), func(t *testing.T) {
			t.Parallel()
			err := events.ValidID(id)
			require.ErrorIs(t, err, events.ErrID)
			require.Equal(t, events.ErrID.Error(), err.Error(), "the error must not hold the id")
		})
	}
}

// pyPair was computed by Python, as above.
var pyPair = map[string]string{
	"s1|alice@example.org": "de9b7aae-7210-56c5-96c9-d6d59b017a08",
	"s1|c1":                "a118d430-2843-551d-8932-3ce3b9bf7e6f",
	"s1|7":                 "03cd6b3d-07fb-587d-be20-1895ec2290b8",
	"s1|x1":                "5529d0e7-be37-5da9-bd80-e4d4dc5b6c00",
	"s1|mallory|5f1c|7":    "2c8fdd8b-cbf1-5152-a4ec-15590262210c",
	"alice@example.org|x2": "08c7f494-6ada-57d3-931f-0f6bd34e4fdf",
	"s1|x2|log":            "b184614e-8df1-5385-8970-a30b092fde4f",
	"s1|d2":                "dd5bf02c-e516-5b4a-b777-5cb8c9368b40",
	"s2|s1":                "a356faa6-8dee-5485-8da4-a93a142570f2",
	"s1|f1":                "4912b81d-9050-5ade-9064-6e65e02af314",
	"s1|m1":                "3533fd48-2be2-5716-b52a-236c71c22404",
	"x2|log":               "91661d56-1799-5f7b-ada8-f8b3c6153fd4",
}

// Ids are made for each event, and an empty list of messages is looked at in each fold. uuid.NewSHA1 would take three
// allocations for an id, and encoding/json an error for the list.
func TestIDsAndEmptyListsAllocateNothing(t *testing.T) {
	for name, work := range map[string]func(){
		"id":      func() { _ = events.TurnID("session", "request") },
		"no list": func() { _ = events.HasMessages(nil) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, work), name)
	}
}

//conformance:h31
func TestKeyedHashes(t *testing.T) {
	t.Parallel()
	key := []byte("a key")
	one := events.HashIP(key, "192.0.2.7")
	require.Regexp(t, `^[0-9a-f]{16}$`, one)
	require.Equal(t, one, events.HashIP(key, " 192.0.2.7 "))
	require.Equal(t, one, events.HashIP(key, "::ffff:192.0.2.7"))
	require.NotEqual(t, one, events.HashIP(key, "192.0.2.8"))
	require.NotEqual(t, one, events.HashIP([]byte("another"), "192.0.2.7"))
	require.Equal(t, events.HashIP(key, "2001:db8::1"), events.HashIP(key, "2001:db8:0:0:ffff::2"))
	require.NotEqual(t, events.HashIP(key, "2001:db8::1"), events.HashIP(key, "2001:db8:0:1::1"))
	require.Empty(t, events.HashIP(key, ""))
	require.NotEqual(t, events.HashUserAgent(key, "x"), events.KeyedHash(key, "ip", "x"))
	require.Equal(t, events.HashUserAgent(key, "x"), events.HashUserAgent(key, "x "))
}

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
			require.ErrorIs(t, must.Err(events.ParseSubject(s)), events.ErrSubject)
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

func TestPosition(t *testing.T) {
	t.Parallel()
	t.Run("reads what it wrote", func(t *testing.T) {
		t.Parallel()
		for _, p := range []events.Position{{}, {Seq: 42}, {Partition: 255, Seq: 1<<64 - 1}} {
			require.Equal(t, p, must.Get(events.ParsePosition(p.String()))(t))
			raw := must.Get(json.Marshal(p))(t)
			require.Equal(t, `"`+p.String()+`"`, string(raw))
			var over events.Position
			require.NoError(t, json.Unmarshal(raw, &over))
			require.Equal(t, p, over)
		}
	})
	for _, s := range []string{"", ":", "0", "0:", ":1", "0:1:2", "-1:2", "+1:2", "0:-2", "0x1:2", " 0:1", "256:1",
		"0:18446744073709551616", "99999999999999999999:1", "٠:١"} {
		t.Run("refuses "+s, func(t *testing.T) {
			t.Parallel()
			must.Fail(events.ParsePosition(s))(t, events.ErrPosition)
		})
	}
	t.Run("a JSON text that is none is refused", func(t *testing.T) {
		t.Parallel()
		var p events.Position
		require.ErrorIs(t, json.Unmarshal([]byte(`"42"`), &p), events.ErrPosition)
	})
}

func TestParsePositions(t *testing.T) {
	t.Parallel()
	t.Run("reads one position a partition", func(t *testing.T) {
		t.Parallel()
		got := must.Get(events.ParsePositions("0:42, 1:17"))(t)
		require.Equal(t, []events.Position{{Seq: 42}, {Partition: 1, Seq: 17}}, got)
	})
	for _, s := range []string{"", "0:1,", "0:1,0:2", "0:1;1:2"} {
		t.Run("refuses "+s, func(t *testing.T) {
			t.Parallel()
			must.Fail(events.ParsePositions(s))(t, events.ErrPosition)
		})
	}
}
