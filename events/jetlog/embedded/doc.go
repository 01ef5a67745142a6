// Package embedded runs a NATS server with JetStream inside the process: reachable
// in process only unless a listener is configured, one process per store directory,
// no signal handling of its own (docs/design.md#running-it).
package embedded
