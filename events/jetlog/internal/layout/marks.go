package layout

import "time"

// SyncKey marks in a stream who makes its events durable. A stream behind another process's gate sends PubAcks before
// the disk has the event, and only that process knows when the disk has it: no other process may acknowledge or show
// the stream's events.
const SyncKey = "turnledger.sync"

const (
	// SyncGate is the mark of a stream whose events a durability gate makes durable.
	SyncGate = "gate"
	// syncServer is the mark of a stream whose server syncs by itself.
	syncServer = "server"
)

// SyncMark returns who makes the log's events durable.
func (l Log) SyncMark() string {
	if l.Gated {
		return SyncGate
	}
	return syncServer
}

// RestoredKey marks in a stream when it was restored. The nodes of a cluster disagree about when a restored stream was
// made: the node that took the copy has another time than the others (nats-server 2.15.2), so that under the next
// leader the stream would seem to be another one.
const RestoredKey = "turnledger.restored"

// RestoringKey marks a stream that is being replaced by a copy, or is such a copy. A log refuses the stream, unless it
// is opened to end the restore: the stream still holds events that were erased since the backup.
const RestoringKey = "turnledger.restoring"

// RestoringStream exists while a log is being restored: from before the first stream is removed until the last copy
// takes events. A copy comes in with its old configuration, and gets its mark a moment later. So if the process is
// killed in between, the mark alone would be missing.
const RestoringStream = "TURNLEDGER-RESTORING"

// RestoringAddress is the prefix of the subjects under which a copy takes events until its restore has ended. The
// stream stores them under the log's subjects. So only the restoring process writes to it: a process that still has the
// former log open writes to subjects without a stream.
func RestoringAddress(stream string) string { return "restoring." + stream + "." }

// restoredFor is how much later than its mark a restored stream may seem to be made, since the clocks differ. A copy
// that NATS's own tools restored also carries a mark, but an old one, of an earlier restore, which says nothing about
// this stream. The opposite order is no problem: a stream that was made long before its mark was restored, since a copy
// in the form of older servers keeps the stream's time.
const restoredFor = 24 * time.Hour

// Made returns when a stream was made, or when it was restored.
func Made(created time.Time, marks map[string]string) time.Time {
	restored, err := time.Parse(time.RFC3339Nano, marks[RestoredKey])
	if err != nil || created.Sub(restored) > restoredFor {
		return created
	}
	return restored
}
