// Package layout defines the configuration of a log's streams, how an existing stream differs from it, and the marks in
// a stream's metadata.
package layout

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events"
)

const (
	partitionsKey = "turnledger.partitions"
	// dupWindow must be longer than a write is retried.
	dupWindow = 2 * time.Minute
)

// Log holds the properties that all streams of a log share.
type Log struct {
	Partitions, Replicas int
	// Gated: this process's durability gate makes the events durable; the server does not.
	Gated bool
	// Restoring: the streams belong to a restore that has not ended.
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
