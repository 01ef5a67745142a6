package layout

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events/jetlog/internal/failure"
)

// Change is a difference between a stream and what is asked of it.
type Change struct {
	// What differs: partitions, replicas, subjects, storage, dupe-window or settings.
	What       string
	Have, Want string
	// Refused says why the change can't be made; empty where operate.Log.Apply makes it.
	Refused string

	// says what is wrong with the stream when Open refuses it.
	says string
	// Edit makes the change in a configuration; nil where it is refused.
	Edit func(*jetstream.StreamConfig)
}

// Fits returns the differences of an existing stream from the one wanted as an ErrStream, nil where there are none.
func Fits(have, want jetstream.StreamConfig) error {
	var err error
	for _, c := range Differences(have, want) {
		err = errors.Join(err, fmt.Errorf("%w: stream %s %s", failure.ErrStream, have.Name, c.says))
	}
	return err
}

// Differences returns the differences of an existing stream from the one wanted. A stream with another number of
// partitions, of another maker, or of a restore that has not ended has no other differences.
func Differences(have, want jetstream.StreamConfig) (out []Change) {
	n, wanted := have.Metadata[partitionsKey], want.Metadata[partitionsKey]
	switch {
	case n == "":
		return []Change{{
			What: "partitions", Have: "none", Want: wanted, Refused: "the stream was not made by Turnledger",
			says: "was not made by Turnledger: give Turnledger a NATS account of its own",
		}}
	case n != wanted:
		return []Change{OtherPartitions(n, wanted)}
	case have.Metadata[RestoringKey] != want.Metadata[RestoringKey]:
		return []Change{{
			What: "restore", Have: "broken off", Want: "whole", Refused: "a restore has not come to its end",
			says: "is one of a restore that has not come to its end: empty the data directory and restore again",
		}}
	}
	if have.Storage != want.Storage {
		out = append(out, Change{
			What: "storage", Have: have.Storage.String(), Want: want.Storage.String(),
			Refused: "NATS does not change where a stream is kept",
			says: fmt.Sprintf("is kept in %s, not in files: an acknowledged turn would not survive a restart; "+
				"make the log anew on file storage", have.Storage),
		})
	}
	if have.Replicas != want.Replicas {
		out = append(out, Change{What: "replicas", Have: strconv.Itoa(have.Replicas), Want: strconv.Itoa(want.Replicas),
			says: fmt.Sprintf("has %d replicas, not %d: set TURNLEDGER_REPLICAS=%d; "+
				"to change them, ask a server that runs so: turnledger streams apply --replicas %d",
				have.Replicas, want.Replicas, have.Replicas, want.Replicas),
			Edit: func(c *jetstream.StreamConfig) { c.Replicas = want.Replicas }})
	}
	a, b := slices.Sorted(slices.Values(have.Subjects)), slices.Sorted(slices.Values(want.Subjects))
	if !slices.Equal(a, b) {
		out = append(out, Change{
			What: "subjects", Have: strconv.Itoa(len(a)) + " patterns", Want: "those of its partition",
			says: "captures other subjects than its partition owns: restore them, or make the log anew " +
				"(a restore that was broken off leaves such streams: empty the data directory and restore again)",
			Edit: func(c *jetstream.StreamConfig) { c.Subjects = want.Subjects },
		})
	}
	if have.Duplicates < want.Duplicates {
		out = append(out, Change{What: "dupe-window", Have: have.Duplicates.String(), Want: want.Duplicates.String(),
			says: fmt.Sprintf("forgets event ids after %s, sooner than a write may be asked again: "+
				"undo it with: nats stream edit %s --dupe-window %s",
				have.Duplicates, have.Name, want.Duplicates),
			Edit: func(c *jetstream.StreamConfig) { c.Duplicates = want.Duplicates }})
	}
	for _, s := range settings {
		if !s.is(&have) {
			continue
		}
		c := Change{What: "settings", Have: s.what, Want: "as it was made", Edit: s.undo,
			says: fmt.Sprintf("was changed (%s): undo it with: nats stream edit %s, "+
				"or with turnledger streams apply where a server still runs", s.what, have.Name)}
		if s.undo == nil {
			c.Refused = "NATS does not take it back: make the log anew, and import or restore it"
		}
		out = append(out, c)
	}
	return out
}

// OtherPartitions returns the change, which is refused, to another number of partitions.
func OtherPartitions(have, want string) Change {
	return Change{What: "partitions", Have: have, Want: want,
		Refused: fmt.Sprintf("the log was made with %s partitions, which is fixed for ever: "+
			"a session's events stand in the stream that owns its bucket, and would lose their positions in another: "+
			"set TURNLEDGER_PARTITIONS=%s, or start a new log", have, have),
		says: fmt.Sprintf("was made with %s partitions, which is fixed for ever: "+
			"set TURNLEDGER_PARTITIONS=%s (or start a new log in an empty data directory)", have, have)}
}

// settings are the settings that would lose, hide or forge events, or keep erased ones. Undo takes the setting back;
// nil where NATS does not.
var settings = []struct {
	what string
	is   func(*jetstream.StreamConfig) bool
	undo func(*jetstream.StreamConfig)
}{
	{
		"limits: the log is kept whole",
		func(c *jetstream.StreamConfig) bool {
			return c.MaxMsgs > 0 || c.MaxBytes > 0 || c.MaxAge > 0 || c.MaxMsgsPerSubject > 0
		},
		func(c *jetstream.StreamConfig) { c.MaxMsgs, c.MaxBytes, c.MaxAge, c.MaxMsgsPerSubject = -1, -1, 0, -1 },
	},
	{
		"a limit on the size of events",
		func(c *jetstream.StreamConfig) bool { return c.MaxMsgSize > 0 },
		func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 },
	},
	{"a limit on consumers", func(c *jetstream.StreamConfig) bool { return c.MaxConsumers > 0 }, nil},
	{
		"another retention policy",
		func(c *jetstream.StreamConfig) bool { return c.Retention != jetstream.LimitsPolicy }, nil,
	},
	{
		"no atomic publish",
		func(c *jetstream.StreamConfig) bool { return !c.AllowAtomicPublish },
		func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true },
	},
	{
		"no direct get",
		func(c *jetstream.StreamConfig) bool { return !c.AllowDirect },
		func(c *jetstream.StreamConfig) { c.AllowDirect = true },
	},
	{
		"no acknowledgements",
		func(c *jetstream.StreamConfig) bool { return c.NoAck },
		func(c *jetstream.StreamConfig) { c.NoAck = false },
	},
	{
		"sealed, or deletes denied: erasure could not work",
		func(c *jetstream.StreamConfig) bool { return c.Sealed || c.DenyDelete || c.DenyPurge }, nil,
	},
	{
		"roll-ups: any publisher could delete a session",
		func(c *jetstream.StreamConfig) bool { return c.AllowRollup },
		func(c *jetstream.StreamConfig) { c.AllowRollup = false },
	},
	{
		"per-message TTL: any publisher could make events vanish",
		func(c *jetstream.StreamConfig) bool { return c.AllowMsgTTL }, nil,
	},
	{
		"message schedules or counters",
		func(c *jetstream.StreamConfig) bool { return c.AllowMsgSchedules || c.AllowMsgCounter }, nil,
	},
	{
		"asynchronous persistence: what is acknowledged would not be on disk",
		func(c *jetstream.StreamConfig) bool { return c.PersistMode == jetstream.AsyncPersistMode }, nil,
	},
	{
		"compression: the server does not overwrite erased events then",
		func(c *jetstream.StreamConfig) bool { return c.Compression != jetstream.NoCompression },
		func(c *jetstream.StreamConfig) { c.Compression = jetstream.NoCompression },
	},
	{
		"it mirrors or sources another stream",
		func(c *jetstream.StreamConfig) bool { return c.Mirror != nil || len(c.Sources) > 0 },
		func(c *jetstream.StreamConfig) { c.Mirror, c.Sources = nil, nil },
	},
	{
		"a subject transform",
		func(c *jetstream.StreamConfig) bool {
			return c.SubjectTransform != nil && c.Metadata[RestoringKey] == ""
		},
		func(c *jetstream.StreamConfig) { c.SubjectTransform = nil },
	},
}
