// Package subscriber counts turns with Watermill alone. It is for programs that are built on Watermill, and need
// neither the fold's verdicts nor the checkpoint of a projection.
package subscriber

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/pubsub"
)

// Run counts until ctx ends. An event comes at least once, so that the table's key, the turn's
// id, counts it once: create table turns_seen (turn_id uuid primary key, day date not null).
func Run(ctx context.Context, log *jetlog.Log, pool *pgxpool.Pool) error {
	sub, err := pubsub.NewSubscriber(log, pubsub.SubscriberConfig{Group: "dailyturns"})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	for k := range log.Partitions() {
		stream := events.StreamName(k)
		router.AddConsumerHandler("dailyturns "+stream, stream, sub, func(m *message.Message) error {
			for _, e := range pubsub.MessageBatch(m) {
				fact := e.Recorded().Fact
				_, start := fact.(*events.TurnStarted)
				_, whole := fact.(*events.TurnRecorded) // it has no start of its own
				if !start && !whole {
					continue
				}
				_, err := pool.Exec(m.Context(), `insert into turns_seen values ($1, $2) on conflict do nothing`,
					events.NamesOf(fact).TurnID, e.Time.UTC())
				if err != nil {
					return err // it comes again
				}
			}
			return nil
		})
	}
	return router.Run(ctx)
}
