package v1

import (
	"cmp"
	"crypto/rand"
	"time"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/reach"
)

// Config of the surface. A process that does not write has neither Turns nor
// SessionWrites, one that does not read has neither Sessions nor Contexts; it then
// lacks those calls.
type Config struct {
	Turns         services.TurnWriter
	SessionWrites services.SessionWriter
	// Erasures and Receipts are nil in a process that knows of neither.
	Erasures services.ErasureWriter
	Receipts services.ReceiptReader
	// Retention is nil in a process that does not look after it.
	Retention services.Retention
	Sessions  services.SessionReader
	Contexts  services.ContextBuilder
	// Identities is nil where no Postgres is configured.
	Identities  services.IdentityReader
	Projections services.ProjectionReader
	// Chat is nil where no model is asked.
	Chat services.Chat
	// DeadLetters of the views that this process can look after.
	DeadLetters []projections.DeadLetterQueue
	// Events is nil in a process that does not read. MetadataKeys, where not nil, are the
	// keys that views show of metadata: a client that folds the events itself is told them.
	Events       services.EventReader
	MetadataKeys []string
	// Keeper is nil where no view can be rebuilt.
	Keeper services.ProjectionKeeper
	// Streams and Backups are nil where the log is nobody's to look after.
	Streams StreamKeeper
	Backups Backups
	// Rules hold callers to what they may reach; their Deadline, 30 s by default, is that of one call. RefusalTime is
	// 500 ms by default.
	reach.Rules
	// MaxBody bounds the body of a request in bytes; 1 MiB by default.
	MaxBody int64
	// Version stands in the description of the API.
	Version string
	// HashKey is the key of the hashes of addresses that go with refused links; by default
	// one that ends with the process.
	HashKey []byte
	Now     func() time.Time
}

// defaultBody bounds a request's body (docs/contract.md#http).
const defaultBody = 1 << 20

func (c Config) withDefaults() Config {
	c.Deadline = cmp.Or(c.Deadline, 30*time.Second)
	c.MaxBody = cmp.Or(c.MaxBody, defaultBody)
	c.RefusalTime = cmp.Or(c.RefusalTime, 500*time.Millisecond)
	c.Version = cmp.Or(c.Version, "dev")
	if len(c.HashKey) == 0 {
		c.HashKey = []byte(rand.Text())
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
