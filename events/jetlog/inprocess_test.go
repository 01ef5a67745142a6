package jetlog

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// An append was passed over if the server still has it in process after a while, and has acknowledged what was sent
// later, or nothing. On a leader that is only slow it was not.
//
//conformance:l4
func TestAnAppendThatWasPassedOver(t *testing.T) {
	const while = 2 * time.Second
	still := &jetstream.APIError{Code: 409, ErrorCode: codeInProcess}
	for name, c := range map[string]struct {
		meanwhile func(p *partition, first time.Time)
		then      error
		lost      bool
	}{
		"others go on":        {func(p *partition, _ time.Time) { p.took(time.Now(), 9) }, still, true},
		"the log is silent":   {func(*partition, time.Time) {}, still, true},
		"the leader is slow":  {func(p *partition, first time.Time) { p.took(first.Add(-1), 9) }, still, false},
		"others only read":    {func(p *partition, _ time.Time) { p.saw(9) }, still, false},
		"no answer any more":  {func(*partition, time.Time) {}, errors.New("lost"), false},
		"it is stored by now": {func(*partition, time.Time) {}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var over passedOver
				p := &partition{}
				p.took(time.Now().Add(-time.Second), 7)
				first := time.Now()
				require.False(t, over.lost(p, still, while), "not at once")
				<-time.After(while / 2)
				c.meanwhile(p, first)
				require.False(t, over.lost(p, still, while), "not yet")
				<-time.After(while / 2)
				require.Equal(t, c.lost, over.lost(p, c.then, while))
			})
		})
	}
}
