// Package layout says what the streams of a log must be, how an existing stream differs from that, and what the marks
// in a stream's metadata mean.
package layout

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
)

const (
	partitionsKey = "turnledger.partitions"
	// dupWindow must be longer than the time for which a write is tried again.
	dupWindow = 2 * time.Minute
)

// Log is what all streams of a log have in common.
type Log struct {
	Partitions, Replicas int
	// Gated: this process's durability gate makes the events durable, and not the server.
	Gated bool
	// Restoring: the streams are those of a restore that has not ended.
	Restoring bool
}

// Stream returns the configuration of a partition's stream.
func (l Log) Stream(partition int) jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name:               events.StreamName(partition),
		Description:        "Turnledger's log, partition " + strconv.Itoa(partition),
		Subjects:           events.StreamSubjects(partition, l.Partitions),
		Retention:          jetstream.LimitsPolicy,
		Storage:            jetstream.FileStorage,
		Replicas:           l.Replicas,
		Duplicates:         dupWindow,
		AllowDirect:        true,
		AllowAtomicPublish: true,
		Metadata:           map[string]string{partitionsKey: strconv.Itoa(l.Partitions), SyncKey: l.SyncMark()},
	}
	if l.Restoring {
		address := RestoringAddress(cfg.Name)
		cfg.Metadata[RestoringKey], cfg.Subjects = "yes", []string{address + ">"}
		cfg.SubjectTransform = &jetstream.SubjectTransformConfig{Source: address + ">", Destination: ">"}
	}
	return cfg
}
