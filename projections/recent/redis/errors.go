package redis

import (
	"errors"

	"github.com/turnledger/turnledger/projections"
)

var (
	// ErrEviction says that the Redis evicts keys when its memory is full.
	ErrEviction = errors.New("this Redis evicts keys, and an evicted session is lost to the view; run: redis-cli " +
		"config set maxmemory-policy noeviction (and put it into redis.conf)")
	// ErrDenied says that Redis answers, but refuses the credentials.
	ErrDenied = errors.New("this Redis does not let the view in: correct the user and the password in the URL " +
		"(TURNLEDGER_REDIS_URL)")
	// ErrAnswer says that the data in Redis was not written by this version.
	ErrAnswer = errors.New("what Redis holds can't be read: rebuild it with turnledger projections rebuild recent")
	errDown   = projections.Unavailable(errors.New("no answer from Redis a moment ago"))
	errClosed = errors.New("the view is closed")
)
