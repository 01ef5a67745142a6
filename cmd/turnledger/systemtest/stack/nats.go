package stack

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/events"
)

// EventMessage returns the message that publishes a fact, with another body where one is given.
func EventMessage(f events.Fact, body string) *nats.Msg {
	env, err := events.Encode(f, time.Now())
	if err != nil {
		panic(err)
	}
	m := &nats.Msg{Subject: env.Subject, Header: nats.Header(env.Header), Data: env.Body}
	if body != "" {
		m.Data = []byte(body)
	}
	return m
}
