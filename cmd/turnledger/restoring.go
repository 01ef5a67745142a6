package main

import (
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services/backup"
	"github.com/turnledger/turnledger/services/history"
)

// backups copies and restores the log.
func (a *app) backups() *backup.Log {
	return &backup.Log{Store: a.store.Store, Door: a.front.Door, Host: host{a}, Logger: a.logger}
}

// host is an app whose log is replaced.
type host struct{ *app }

// EndAnswers implements backup.Host.
func (h host) EndAnswers() {
	if h.chatting != nil {
		h.chatting.EndAnswers()
	}
}

// Still implements backup.Host.
func (h host) Still() { h.still() }

// Reopen implements backup.Host.
func (h host) Reopen() { close(h.replaced) }

// Eraser implements backup.Host.
func (h host) Eraser(log *jetlog.Log) backup.Eraser {
	return history.New(history.On(log), history.Config{Rules: h.cfg.Rules(), Policy: h.cfg.Policy(), Logger: h.logger})
}
