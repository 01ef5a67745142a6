package main

import (
	"github.com/turnledger/turnledger/projections/fleet"
	"github.com/turnledger/turnledger/projections/runner"
	"github.com/turnledger/turnledger/services/eraser"
)

// openErasing makes the reader of receipts and, in the role eraser, the eraser. Views, memory and history must be open.
func (a *app) openErasing() {
	var places []eraser.Place
	for _, p := range a.views.Places() {
		places = append(places, p)
	}
	a.receipts = eraser.NewReceipts(eraser.On(a.store.Log), a.notes, places)
	if !a.roles.has(roleEraser) {
		return
	}
	keepers := eraser.Keepers{Audit: a.views.audit}
	if a.memory != nil {
		keepers.Memory = a.memory
	}
	if m := a.views.index; m != nil {
		keepers.Index = m.view
	}
	a.eraser = eraser.NewService(a.store.Log, a.notes, eraser.ServiceConfig{
		Config: runner.Config{
			Rules: a.cfg.Rules(), Follower: a.follower, Logger: a.logger, Metrics: a.metrics, Traces: a.traces,
		},
		Owners: a.owners, Rate: a.cfg.EraseRate, Places: places, Keepers: keepers, Turns: a.history,
		Anonymous: a.cfg.AnonymousAge(), Conversation: a.cfg.ConversationAge(), Response: a.cfg.ResponseAge(),
		Linked: a.cfg.Retention,
	})
	a.views.AddWorker(fleet.Worker{Name: a.eraser.Name(), Runner: a.eraser.Feed})
}
