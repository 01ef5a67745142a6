package jetlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
	"github.com/turnledger/turnledger/events/pause"
)

// Server error codes (server/errors.json of 2.15) that end an append. After any other server error the outcome is
// unknown or the server is busy: 10158 (an append with the same id is in progress), 10176 (the batch lacks a part),
// status 429 and 503.
const (
	codeWrongLastSequence = 10071
	codeWrongLastConstant = 10164
	codeBatchDuplicate    = 10201
	codeStreamTooLarge    = 10054
	codeHeaderTooLarge    = 10097
	codeWrongStream       = 10060
)

// Server error codes of a server, or an account, that has no room. In a cluster a leader that answers with one of these
// steps down, and the next leader may have room.
const (
	codeAccountFull = 10002
	codeStorageFull = 10047
)

func retry(ctx context.Context, attempt func() (Ack, error)) (Ack, error) {
	full := false
	ack, err := backoff.Retry(ctx, func() (Ack, error) {
		ack, err := attempt()
		if final := classify(err); final != nil {
			return Ack{}, backoff.Permanent(final)
		}
		full = full || noRoom(err)
		return ack, err
	}, backoff.WithBackOff(pause.Growing(5*time.Millisecond, 250*time.Millisecond)), backoff.WithMaxElapsedTime(0))
	switch {
	case err == nil, errors.Is(err, ErrConflict), errors.Is(err, ErrTooLarge), errors.Is(err, ErrBatchDuplicate):
		return ack, err
	case errors.Is(err, ErrNoWrites):
		return Ack{}, fmt.Errorf("append: %w", err)
	case full:
		return Ack{}, fmt.Errorf("append: %w: %w", ErrNoWrites, err)
	default:
		return Ack{}, Unavailable("append", err)
	}
}

func noRoom(err error) bool {
	code := wire.APIError(err).ErrorCode
	return code == codeAccountFull || code == wire.ServerFull || code == codeStorageFull
}

// classify returns the error that ends an append, or nil for success and for an outcome that is unknown or busy.
func classify(err error) error {
	answer := wire.APIError(err)
	switch code := answer.ErrorCode; {
	case code == codeWrongLastSequence, code == codeWrongLastConstant:
		return &Conflict{Last: trailingNumber(answer.Description)}
	case code == codeBatchDuplicate:
		return ErrBatchDuplicate
	case code == codeStreamTooLarge, code == codeHeaderTooLarge, errors.Is(err, nats.ErrMaxPayload):
		return ErrTooLarge
	case code == codeWrongStream:
		return fmt.Errorf("%w: %w: another stream captures the log's subjects: "+
			"give Turnledger a NATS account of its own", ErrUnavailable, ErrStream)
	case errors.Is(err, ErrNoWrites):
		return err
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionDraining):
		return Unavailable("", err)
	}
	return nil
}

// trailingNumber reads N of "wrong last sequence: N".
func trailingNumber(s string) uint64 {
	n, _ := strconv.ParseUint(s[strings.LastIndexByte(s, ' ')+1:], 10, 64) // 0 for any other text
	return n
}
