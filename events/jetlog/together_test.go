package jetlog

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// Appends share a batch unless the server would refuse it: each is a list of messages, "subject/id", with "!" if the
// message expects something of its subject.
func TestWhichAppendsShareABatch(t *testing.T) {
	t.Parallel()
	append1 := func(words string) *joined {
		j := &joined{}
		for word := range strings.FieldsSeq(words) {
			bare, expects := strings.CutSuffix(word, "!")
			subject, id, _ := strings.Cut(bare, "/")
			m := nats.NewMsg(subject)
			m.Header.Set(jetstream.MsgIDHeader, id)
			if expects {
				m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
			}
			j.msgs = append(j.msgs, m)
		}
		return j
	}
	wide := append1(strings.Repeat("w/1 ", maxBatch))
	large := append1("l/1")
	large.size = batchBytes
	for name, c := range map[string]struct {
		waiting []*joined
		groups  []int
	}{
		"others":                  {[]*joined{append1("a/1! a/2"), append1("b/3! b/4"), append1("c/5!")}, []int{3}},
		"an id twice":             {[]*joined{append1("a/1! a/2"), append1("b/3 b/2"), append1("c/4")}, []int{1, 2}},
		"expected first":          {[]*joined{append1("a/1! a/2"), append1("a/3! a/4")}, []int{1, 1}},
		"expected second":         {[]*joined{append1("a/1! b/2"), append1("c/3 b/4!"), append1("d/5")}, []int{1, 2}},
		"nothing expected":        {[]*joined{append1("a/1! a/2"), append1("a/3 a/4")}, []int{2}},
		"itself":                  {[]*joined{append1("a/1 a/1!")}, []int{1}},
		"too many":                {[]*joined{append1("a/2"), wide, append1("b/3")}, []int{1, 1, 1}},
		"just full":               {[]*joined{large, append1("b/3")}, []int{2}},
		"too large with a second": {[]*joined{{msgs: append1("a/2").msgs, size: 1}, large}, []int{1, 1}},
	} {
		var groups []int
		for waiting := c.waiting; len(waiting) > 0; waiting = waiting[groups[len(groups)-1]:] {
			groups = append(groups, shareBatch(waiting))
		}
		require.Equal(t, c.groups, groups, name)
	}
}

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
