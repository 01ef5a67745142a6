package main

import httpwire "github.com/turnledger/turnledger/services/httpapi/wire"

// checks returns what /readyz probes: the log, without which nothing works; the stores of views, without which reads
// come from the log; and the issuer of tokens, without which only callers with an API key are admitted.
func (a *app) checks() []httpwire.Check {
	out := []httpwire.Check{{Name: "log", Probe: a.store.Log.Ready}}
	for _, store := range a.views.Checks() {
		out = append(out, httpwire.Check{Name: store.Store, Optional: true, Probe: store.Probe})
	}
	if a.callers.Issuer != nil {
		issuer, keys := a.callers.Issuer, a.callers.Keys
		out = append(out, httpwire.Check{Name: "issuer", Optional: keys != nil, Probe: issuer.Ready})
	}
	return out
}
