package services

import (
	"cmp"
	"context"
	"crypto/rand"
	"net"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services/access"
)

// Ports are what a process offers its surfaces. A surface lacks the calls whose port is nil.
type Ports struct {
	// The writers are nil in a process that does not write.
	Turns         TurnWriter
	Messages      MessageWriter
	SessionWrites SessionWriter
	// Erasures and Receipts are nil in a process without erasures, Retention in one without retention.
	Erasures  ErasureWriter
	Receipts  ReceiptReader
	Retention Retention
	// Lookup spares reads of whole sessions to whoever writes, reads or answers: every process has it.
	Lookup TurnLookup
	// The readers are nil in a process that does not read.
	Sessions SessionReader
	Contexts ContextBuilder
	Events   EventReader
	WhatIfs  WhatIfs
	People   PersonalData
	// These are nil where no Postgres is configured, and Similar where no index is.
	Identities IdentityReader
	Lists      SessionLister
	Counts     TurnCounter
	Search     Searcher
	Similar    SimilarTurns
	// Chat is nil in a process that asks no model.
	Chat Chat
	// Running are the answers that are being made; nil in a process that asks no model.
	Running     RunningAnswers
	Projections ProjectionReader
	// Keeper is nil if no view can be rebuilt.
	Keeper ProjectionKeeper
	// DeadLetters are the queues of the views whose dead letters this process manages.
	DeadLetters []projections.DeadLetterQueue
	// Keys lists the API keys without their secrets; nil if there is no file of keys.
	Keys func() ([]access.Key, error)
	// Tokens makes tokens for browsers; nil in a process that makes none.
	Tokens access.TokenIssuer
	// Rules say who is admitted. Their Deadline is 30 s by default, their RefusalTime 500 ms.
	Rules
	// HashKey is the key for the hashes of addresses that are recorded with refused links; by default a random key that
	// the process forgets when it ends.
	HashKey []byte
	// Version is shown to clients.
	Version string
	Now     func() time.Time
}

// WithDefaults returns the ports with what was left out.
func (p Ports) WithDefaults() Ports {
	p.Deadline = cmp.Or(p.Deadline, 30*time.Second)
	p.RefusalTime = cmp.Or(p.RefusalTime, 500*time.Millisecond)
	p.Version = cmp.Or(p.Version, "dev")
	if len(p.HashKey) == 0 {
		p.HashKey = []byte(rand.Text())
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	return p
}

// Source returns a hash of the address that a call came from, for the security audit.
func (p *Ports) Source(ctx context.Context) string {
	host, _, err := net.SplitHostPort(access.CallOf(ctx).Remote)
	if err != nil {
		return ""
	}
	return events.HashIP(p.HashKey, host)
}
