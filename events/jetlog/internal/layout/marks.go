package layout

import "time"

// SyncKey marks in a stream who makes its events durable. A stream behind another process's gate sends PubAcks before
// the disk has the event, and only that process knows when the disk has it: nobody else may acknowledge or show what is
// in the stream.
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

// RestoredKey marks in a stream when it was restored. The nodes of a cluster do not agree on the time at which a
// restored stream was made: the node that took the copy has another time than the others (nats-server 2.15.2), so that
// under the next leader the stream would seem to be another.
const RestoredKey = "turnledger.restored"

// RestoringKey marks a stream that is being replaced by a copy, or is one. A log refuses it, unless it is opened to end
// the restore: what was erased since the backup is still in it.
const RestoringKey = "turnledger.restoring"

// RestoringStream stands as long as a log is restored: from before the first stream is taken away until the last copy
// takes events. A copy comes in with the configuration that it was taken with, and gets its mark a moment later, so the
// mark alone would not outlive a process that is killed in between.
const RestoringStream = "TURNLEDGER-RESTORING"

// RestoringAddress begins the subjects that a copy takes events under until its restore has ended. The stream stores
// them under the subjects of the log. So only the process that restores writes to it: another process that still has
// the former log open reaches nobody.
func RestoringAddress(stream string) string { return "restoring." + stream + "." }

// restoredFor is how much later than its mark a restored stream may be made, by another clock. A copy that NATS's own
// tools restored carries the mark, too: that mark is as old as an earlier restore, and says nothing about this stream.
// A stream that was made long before its mark was restored all the same: a copy in the form of older servers brings its
// stream's time to the node that takes it.
const restoredFor = 24 * time.Hour

// Made returns when a stream came to be what it is.
func Made(created time.Time, marks map[string]string) time.Time {
	restored, err := time.Parse(time.RFC3339Nano, marks[RestoredKey])
	if err != nil || created.Sub(restored) > restoredFor {
		return created
	}
	return restored
}
