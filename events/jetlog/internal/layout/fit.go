package layout

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events/jetlog/internal/failure"
)

// Change is a difference between a stream and its wanted configuration.
type Change struct {
	// What names the difference: partitions, replicas, subjects, storage, dupe-window or settings.
	What       string
	Have, Want string
	// Refused says why the change can't be made; empty if operate.Log.Apply makes it.
	Refused string

	// says is the error text with which Open refuses the stream.
	says string
	// Edit makes the change in a configuration; nil if the change is refused.
	Edit func(*jetstream.StreamConfig)
}

// Fits returns the differences between an existing stream and the wanted one as an ErrStream, or nil if there are none.
func Fits(have, want jetstream.StreamConfig) error {
	var err error
	for _, c := range Differences(have, want) {
		err = errors.Join(err, fmt.Errorf("%w: stream %s %s", failure.ErrStream, have.Name, c.says))
	}
	return err
}

// Differences returns the differences between an existing stream and the wanted one. If the number of partitions, the
// maker or the state of a restore differs, Differences returns only that difference.
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
		right := have
		if s.undo(&right); reflect.DeepEqual(right, have) {
			continue
		}
		c := Change{What: "settings", Have: s.what, Want: "as it was made", Edit: s.undo,
			says: fmt.Sprintf("was changed (%s): undo it with: nats stream edit %s, "+
				"or with turnledger streams apply where a server still runs", s.what, have.Name)}
		if s.final {
			c.Refused, c.Edit = "NATS does not take it back: make the log anew, and import or restore it", nil
		}
		out = append(out, c)
	}
	return out
}

// OtherPartitions returns the change to another number of partitions, which is always refused.
func OtherPartitions(have, want string) Change {
	return Change{What: "partitions", Have: have, Want: want,
		Refused: fmt.Sprintf("the log was made with %s partitions, which is fixed for ever: "+
			"a session's events stand in the stream that owns its bucket, and would lose their positions in another: "+
			"set TURNLEDGER_PARTITIONS=%s, or start a new log", have, have),
		says: fmt.Sprintf("was made with %s partitions, which is fixed for ever: "+
			"set TURNLEDGER_PARTITIONS=%s (or start a new log in an empty data directory)", have, have)}
}

// settings are the settings that would lose, hide or forge events, or keep erased ones. undo corrects one setting, and
// leaves the rest of a configuration alone. NATS does not let a final setting be changed back.
var settings = []struct {
	what  string
	undo  func(*jetstream.StreamConfig)
	final bool
}{
	{"limits: the log is kept whole", func(c *jetstream.StreamConfig) {
		unlimited(&c.MaxMsgs, &c.MaxBytes, &c.MaxMsgsPerSubject)
		c.MaxAge = min(c.MaxAge, 0)
	}, false},
	{"a limit on the size of events", func(c *jetstream.StreamConfig) { unlimited(&c.MaxMsgSize) }, false},
	{"a limit on consumers", func(c *jetstream.StreamConfig) { unlimited(&c.MaxConsumers) }, true},
	{"another retention policy", func(c *jetstream.StreamConfig) { c.Retention = jetstream.LimitsPolicy }, true},
	{"no atomic publish", func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true }, false},
	{"no direct get", func(c *jetstream.StreamConfig) { c.AllowDirect = true }, false},
	{"no acknowledgements", func(c *jetstream.StreamConfig) { c.NoAck = false }, false},
	{"sealed, or deletes denied: erasure could not work", func(c *jetstream.StreamConfig) {
		c.Sealed, c.DenyDelete, c.DenyPurge = false, false, false
	}, true},
	{"roll-ups: any publisher could delete a session", func(c *jetstream.StreamConfig) { c.AllowRollup = false },
		false},
	{"per-message TTL: any publisher could make events vanish", func(c *jetstream.StreamConfig) {
		c.AllowMsgTTL = false
	}, true},
	{"message schedules or counters", func(c *jetstream.StreamConfig) {
		c.AllowMsgSchedules, c.AllowMsgCounter = false, false
	}, true},
	{"asynchronous persistence: what is acknowledged would not be on disk", func(c *jetstream.StreamConfig) {
		c.PersistMode = jetstream.DefaultPersistMode
	}, true},
	{"compression: the server does not overwrite erased events then", func(c *jetstream.StreamConfig) {
		c.Compression = jetstream.NoCompression
	}, false},
	{"it mirrors or sources another stream", func(c *jetstream.StreamConfig) { c.Mirror, c.Sources = nil, nil }, false},
	{"a subject transform", func(c *jetstream.StreamConfig) {
		if c.Metadata[RestoringKey] == "" {
			c.SubjectTransform = nil
		}
	}, false},
}

// unlimited removes limits. Both 0 and -1 mean no limit.
func unlimited[N ~int | ~int32 | ~int64](limits ...*N) {
	for _, n := range limits {
		if *n > 0 {
			*n = -1
		}
	}
}
