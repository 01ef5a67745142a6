package audit_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections/audit"
)

// counted is a log that tells how many sessions were read from it.
type counted struct {
	*journal
	reads int
}

func (c *counted) Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	c.reads++
	return c.journal.Session(ctx, sessionID, after, upTo)
}

func openCounted(t *testing.T, log *journal) (*tables, *counted) {
	c := &counted{journal: log}
	return open(t, c), c
}

// anonymousThenLinked has turns before its link, and an answer after it.
func anonymousThenLinked() *journal {
	l := newJournal()
	l.add(started("s", "r1"), finalized("s", "r1"), started("s", "r2"), linked("s", "u"), finalized("s", "r2"))
	return l
}

func TestALinkNeedsNoReadOfWhatWasSeen(t *testing.T) {
	t.Parallel()
	log := anonymousThenLinked()
	want := filled(t, log, 100).dump()
	a, c := openCounted(t, log)
	for most := 1; most <= 5; most++ {
		a.empty()
		claim(t, log, a).all(most)
		require.Equal(t, want, a.dump(), "batches of %d", most)
		require.Zero(t, c.reads)
	}
}

// Another runner may have applied events between two claims.
//
//conformance:h51
func TestALinkAfterAClaimReadsTheLog(t *testing.T) {
	t.Parallel()
	log := anonymousThenLinked()
	want := filled(t, log, 100).dump()
	a, c := openCounted(t, log)
	claim(t, log, a).next(1)
	claim(t, log, openWith(t, audit.Config{URL: a.url, Log: log})).next(1)
	claim(t, log, a).all(1)
	require.Equal(t, want, a.dump())
	require.Equal(t, 1, c.reads)
}

// What is kept of sessions without a link is bounded; those longest at rest are read.
func TestSessionsBeyondWhatIsKeptAreRead(t *testing.T) {
	t.Parallel()
	log := newJournal()
	long := strings.Repeat("a long answer. ", 60_000)
	for i := range 24 {
		session := fmt.Sprint("s", i)
		final := finalized(session, "r")
		final.AnswerNeutral = long
		log.add(started(session, "r"), final)
	}
	a, c := openCounted(t, log)
	f := claim(t, log, a)
	log.add(linked("s23", "u"))
	f.all(100)
	require.Zero(t, c.reads)
	log.add(linked("s0", "u"))
	f.all(100)
	require.Equal(t, 1, c.reads)
}

// What has met its boundary is nothing that a link brings in, so its texts are kept no
// longer; retention may take it out of the log meanwhile.
func TestASessionThatHasExpiredIsNotKept(t *testing.T) {
	t.Parallel()
	log := newJournal()
	a, c := openCounted(t, log)
	f := claim(t, log, a)
	log.add(started("s", "r1"), finalized("s", "r1"))
	f.all(100)
	log.pass(2 * rules.SessionTTL)
	log.add(started("other", "r1"))
	f.all(100)
	log.add(linked("s", "u"))
	f.all(100)
	require.Equal(t, 1, c.reads)
	require.Equal(t, filled(t, log, 100).dump(), a.dump())
}
