package events_test

import (
	"bytes"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/turnledger/turnledger/events"
)

// problems are all the words that Decode may say; none can hold any content.
var problems = map[string]bool{
	"": true, "wrong_subject": true, "not_a_cloudevent": true, "unknown_type": true, "wrong_event_id": true,
	"malformed_body": true, "malformed_id": true, "malformed_messages": true, "malformed_metadata": true,
	"malformed_tombstones": true, "malformed_segments": true,
	"malformed_description": true, "wrong_turn_id": true, "empty_question": true, "empty_answer": true,
	"malformed_summary": true, "malformed_extension": true, "malformed_prune": true,
}

func FuzzToken(f *testing.F) {
	for _, id := range []string{"", "s1", "a.b", "~", "~YQ", "ü", "\xff", "*", ">"} {
		f.Add(id, id+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		token := events.Token(a)
		back, err := events.ParseToken(token)
		if err != nil || back != a {
			t.Fatalf("%q comes back as %q, %v", a, back, err)
		}
		if (token == events.Token(b)) != (a == b) {
			t.Fatalf("%q and %q share %q", a, b, token)
		}
		if id, err := events.ParseToken(a); err == nil && events.Token(id) != a {
			t.Fatalf("%q is taken for a token of %q", a, id)
		}
		for _, c := range []byte(token) {
			if c <= ' ' || c >= utf8.RuneSelf || bytes.IndexByte([]byte(".*>"), c) >= 0 {
				t.Fatalf("%q of %q is no NATS token", token, a)
			}
		}
	})
}

func FuzzParseSubject(f *testing.F) {
	for _, s := range []string{"", "turns", "turns.201.s1", "identities.201.s1", "turns.1.s1", "turns.201.~czE",
		"turns.201.s1.x", "turns..", "...."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, identity, err := events.ParseSubject(s)
		if err != nil {
			return
		}
		again := events.SessionSubject(id)
		if identity {
			again = events.IdentitySubject(id)
		}
		if again != s {
			t.Fatalf("%q is taken for a subject of %q, which has %q", s, id, again)
		}
	})
}

func FuzzParsePosition(f *testing.F) {
	for _, s := range []string{"", "0:42", "255:18446744073709551615", "256:1", "0:01", "-1:1", "0:1,1:2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := events.ParsePosition(s)
		if err == nil {
			if back, err := events.ParsePosition(p.String()); err != nil || back != p {
				t.Fatalf("%q is %v, which is %v, %v", s, p, back, err)
			}
		}
		if list, err := events.ParsePositions(s); err == nil && len(list) == 0 {
			t.Fatalf("%q gives no position and no error", s)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, fact := range append(fullFacts(), leastFacts()...) {
		env := envelope(fact)
		f.Add(env.Subject, "1.0", env.Header["ce-id"][0], fact.Type(), env.Body)
	}
	for _, e := range slices.Concat(envelopeEdits(), factEdits(), tombstoneEdits(), segmentEdits(), selfEdits()) {
		env := envelope(e.fact)
		if e.change != nil {
			e.change(&env)
		}
		f.Add(env.Subject, "1.0", e.fact.EventID(), e.fact.Type(), env.Body)
	}
	f.Fuzz(func(t *testing.T, subject, spec, id, typ string, body []byte) {
		env := events.Envelope{Subject: subject, Body: body, Header: events.Header{
			"ce-specversion": {spec}, "ce-id": {id}, "ce-type": {typ},
		}}
		r := events.Decode(env, at(1), recordedAt)
		if !problems[r.Problem] || (r.Fact == nil) != (r.Problem != "") {
			t.Fatalf("problem %q, fact %v", r.Problem, r.Fact)
		}
		if r.Fact == nil {
			return
		}
		if r.Fact.Subject() != subject || r.Fact.EventID() != id || r.Fact.Type() != typ {
			t.Fatalf("the fact is not what its envelope says: %v", r.Fact)
		}
		once, err := events.Encode(r.Fact, recordedAt)
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		back := events.Decode(once, at(1), recordedAt)
		if back.Fact == nil {
			t.Fatalf("what was written can't be read: %s", back.Problem)
		}
		twice, err := events.Encode(back.Fact, recordedAt)
		if err != nil || !bytes.Equal(once.Body, twice.Body) {
			t.Fatalf("%s becomes %s, %v", once.Body, twice.Body, err)
		}
	})
}
