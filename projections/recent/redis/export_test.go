package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

// InSteps has each script carry one session only.
func (v *View) InSteps() *View {
	v.chunk = 1
	return v
}

// ApplyFirst applies the first step of a batch, as if the process had ended then.
func (v *View) ApplyFirst(ctx context.Context, b projections.Batch) error {
	keys, args, err := v.commit(b, false)
	if err != nil {
		return err
	}
	args = append(args, strconv.Itoa(v.cfg.Limits.MaxTurns))
	return v.committed(ctx, applyScript, keys, v.operations(b, time.Now().UnixMilli())[0].appendTo(args))
}

// Key of a session, 'h' or 't', or of a checkpoint, "cp", in a generation.
func (v *View) Key(generation int, kind, of string) string {
	return v.root + strconv.Itoa(generation) + ":" + kind + ":" + of
}

// Pointer to the generation.
func (v *View) Pointer() string { return v.pointer }

// Roundtrip encodes and decodes a turn and a head.
func Roundtrip(t *session.Turn, h session.Head) (*session.Turn, session.Head, error) {
	back, err := recent.ReadTurn(string(recent.Record(t)))
	if err != nil {
		return nil, h, err
	}
	h, err = recent.ReadHead(string(recent.AppendHead(nil, h)))
	return back, h, err
}

// ReadRecord reads what stands in Redis.
func ReadRecord(record string) error {
	_, err := recent.ReadTurn(record)
	_, err2 := recent.ReadHead(record)
	if err == nil || err2 == nil {
		return nil
	}
	return err
}
