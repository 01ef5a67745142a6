package main

import (
	"context"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services/backup"
	"github.com/turnledger/turnledger/services/write"
)

// backups copies and restores the log.
func (a *app) backups() *backup.Log {
	return &backup.Log{Store: a.store.Store, Door: a.front.Door, Host: host{a}, Logger: a.logger}
}

// host is an app whose log is replaced.
type host struct{ *app }

// EndAnswers implements backup.Host.
func (h host) EndAnswers() { h.answers.EndAnswers() }

// Still implements backup.Host.
func (h host) Still() { h.still() }

// Reopen implements backup.Host.
func (h host) Reopen() { close(h.replaced) }

// KeepItemKey implements backup.Host.
func (host) KeepItemKey(ctx context.Context, log *jetlog.Log, key string) error {
	notes, err := log.Notes(ctx)
	if err != nil {
		return err
	}
	if err := notes.Put(ctx, itemKeyNote, key); err != nil {
		return err
	}
	_, err = notes.Once(ctx, itemKeyNote, func() string { return key }) // then it is durable
	return err
}

// Eraser implements backup.Host.
func (h host) Eraser(log *jetlog.Log) backup.Eraser {
	return write.New(write.On(log), write.Config{Rules: h.cfg.Rules(), Policy: h.cfg.Policy(), Logger: h.logger})
}
