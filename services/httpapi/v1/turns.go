package v1

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
)

// Bounds of POST /turns (docs/contract.md#many-turns-at-once).
const (
	maxLines     = 1000
	maxBatchBody = 8 << 20
	// batchesInMemory bounds the bytes of the batches that are read and recorded at the same time.
	batchesInMemory = 64 << 20
	// ownersAtOnce bounds the sessions of one batch that are looked up at the same time.
	ownersAtOnce = 64
)

const ndjson = "application/x-ndjson"

// batches adds the call that records many turns.
func (a *surface) batches() {
	many := op("record-turns", access.TurnsWrite, "POST /turns", "Record many turns, a line of JSON each; "+
		"the answer has a line for each", unread, tooBig, tooMany).within(a.cfg.Deadline).boundsItself()
	many.RequestBody = &huma.RequestBody{Required: true, Content: contentOf[lineBody](a, ndjson)}
	many.Responses = map[string]*huma.Response{"200": {Content: contentOf[lineJSON](a, ndjson)}}
	b := &batcher{a, semaphore.NewWeighted(batchesInMemory), bodyFieldsOf(reflect.TypeFor[lineBody]())}
	raw[anyAnswer](a, b.record, many)
}

type manyIn struct {
	OnlyNew onlyNew `header:"If-None-Match" doc:"Turns that stand already are left as they are, and get no answer"`
}

// lineBody is the body of a start, with its session.
type lineBody struct {
	SessionID *id `json:"session_id" doc:"The session of the turn"`
	startBody
}

// lineJSON is the answer to one line: what the single call would have answered, without the turn's texts.
type lineJSON struct {
	Line            int              `json:"line" doc:"Its number in the request's body, from 1 on"`
	HTTPStatus      int              `json:"http_status" doc:"What the single call would have answered" example:"201"`
	TurnID          *uuid.UUID       `json:"turn_id,omitempty"`
	Position        *events.Position `json:"position,omitempty" example:"0:42"`
	Duplicate       *bool            `json:"duplicate,omitempty"`
	DroppedMetadata []string         `json:"dropped_metadata,omitzero"`
	Code            string           `json:"code,omitempty" doc:"Of a problem" example:"session_erased"`
	Detail          string           `json:"detail,omitempty"`
	RetryAfter      int              `json:"retry_after,omitempty" doc:"Seconds until the line may come again"`
}

// batcher answers POST /turns.
type batcher struct {
	*surface
	room  *semaphore.Weighted
	known bodyFields
}

// batchLine is one line of a batch on its way.
type batchLine struct {
	number  int
	command decide.Start
	turn    services.Turn
	err     error
}

func (b *batcher) record(w http.ResponseWriter, r *http.Request, in *manyIn) error {
	held := &heldBody{r.Body, b.room, 0}
	defer func() { b.room.Release(held.bytes) }()
	r.Body = held
	ctx := r.Context()
	body, err := wire.ReadBody(r, maxBatchBody)
	if err != nil {
		return err
	}
	lines, err := b.read(ctx, body)
	if err != nil {
		return err
	}
	for _, l := range lines {
		l.command.OnlyNew = bool(in.OnlyNew)
	}
	b.admit(ctx, lines)
	b.start(ctx, lines)
	b.answer(ctx, w, lines)
	return nil
}

// heldBody is a body that takes room for what was read of it, not for what its sender says that will come, and not for
// what is read of a body that is too large only to be thrown away. Where there is no room, it fails with
// wire.ErrOverloaded.
type heldBody struct {
	io.ReadCloser
	room  *semaphore.Weighted
	bytes int64
}

// Read implements io.Reader.
func (h *heldBody) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	more := min(int64(n), maxBatchBody-h.bytes)
	if !h.room.TryAcquire(more) {
		return 0, wire.ErrOverloaded
	}
	h.bytes += more
	return n, err
}

// read reads the lines of a body. It counts them before it looks into any.
func (b *batcher) read(ctx context.Context, body []byte) (lines []*batchLine, err error) {
	number := 0
	var texts [][]byte
	for text := range bytes.Lines(body) {
		number++
		if text = bytes.TrimSpace(text); len(text) > 0 {
			texts = append(texts, text)
			lines = append(lines, &batchLine{number: number})
		}
	}
	switch {
	case len(lines) == 0:
		return nil, problems.New(problems.CodeMalformed, "the body is empty: send a JSON object in each line")
	case len(lines) > maxLines:
		return nil, problems.New(problems.CodeTooLarge, fmt.Sprintf("the body has more than %d lines", maxLines))
	}
	source := b.cfg.Source(ctx)
	for i, l := range lines {
		l.command, l.err = b.command(ctx, texts[i], source)
	}
	return lines, nil
}

// command reads one line.
func (b *batcher) command(ctx context.Context, text []byte, source string) (c decide.Start, err error) {
	if int64(len(text)) > b.cfg.MaxBody {
		return c, &wire.TooLarge{Most: b.cfg.MaxBody}
	}
	var body lineBody
	v := reflect.ValueOf(&body).Elem()
	if err := decode(text, v, b.known); err != nil {
		return c, err
	}
	if body.SessionID == nil {
		return c, invalid("session_id", "is required")
	}
	if body.RequestID == nil {
		return c, invalid("request_id", "is required")
	}
	return body.command(body.SessionID.text(), body.RequestID.text(), source), speaksForItself(ctx, v, b.known)
}

// admit refuses the lines whose session their caller may not know of, and those of a session or an identity that asks
// too often. A line that was refused for a while also stops the later ones of its session.
func (b *batcher) admit(ctx context.Context, lines []*batchLine) {
	refused := b.unreachable(ctx, lines)
	for _, l := range lines {
		session := l.command.SessionID
		if l.err != nil {
			continue
		}
		if l.err = refused[session]; l.err != nil {
			continue
		}
		l.err = b.cfg.Admit(ctx, services.Entry{
			Kind: services.KindTurn, SessionID: session, IdentityID: l.command.IdentityID, Begins: true,
		})
		if l.err != nil && problems.Of(l.err).Retry {
			refused[session] = l.err
		}
	}
}

// unreachable returns the errors of the sessions that the caller may not write to.
func (b *batcher) unreachable(ctx context.Context, lines []*batchLine) map[string]error {
	refused := map[string]error{}
	if bound(ctx) == "" {
		return refused
	}
	var of errgroup.Group
	of.SetLimit(ownersAtOnce)
	found := map[string]*error{}
	for _, l := range lines {
		session := l.command.SessionID
		if l.err != nil || found[session] != nil {
			continue
		}
		err := new(error)
		found[session] = err
		of.Go(func() error {
			*err = b.cfg.ReachOrBegin(ctx, session)
			return nil
		})
	}
	_ = of.Wait() // each error is its session's
	for session, err := range found {
		if *err != nil {
			refused[session] = *err
		}
	}
	return refused
}

// start records the lines that were admitted.
func (b *batcher) start(ctx context.Context, lines []*batchLine) {
	var admitted []*batchLine
	var commands []decide.Start
	for _, l := range lines {
		if l.err == nil {
			admitted, commands = append(admitted, l), append(commands, l.command)
		}
	}
	for i, o := range b.cfg.Turns.StartTurns(ctx, commands) {
		admitted[i].turn, admitted[i].err = o.Turn, o.Err
	}
}

// answer writes a line for each line.
func (b *batcher) answer(ctx context.Context, w http.ResponseWriter, lines []*batchLine) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	recorded := 0
	for _, l := range lines {
		row := l.row()
		b.wire.CountLine(row.HTTPStatus)
		if row.HTTPStatus >= http.StatusInternalServerError {
			wire.CallOf(ctx).Failed(l.err)
		}
		if row.HTTPStatus == http.StatusCreated {
			recorded++
		}
		_ = enc.Encode(row) // a struct of texts and numbers
	}
	call := wire.CallOf(ctx)
	call.SetAttribute("lines", len(lines))
	call.SetAttribute("created", recorded)
	w.Header()["Content-Type"] = []string{ndjson}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(out.Bytes()) // the client is gone, then
}

func (l *batchLine) row() *lineJSON {
	if l.err != nil {
		p := problemOf(l.err)
		return &lineJSON{
			Line: l.number, HTTPStatus: p.Status, Code: p.Code, Detail: p.Detail,
			RetryAfter: problems.Of(l.err).RetryAfter(),
		}
	}
	t := &l.turn
	row := &lineJSON{
		Line: l.number, HTTPStatus: http.StatusCreated, TurnID: &t.ID, Position: &t.Position, Duplicate: &t.Duplicate,
		DroppedMetadata: append([]string{}, t.DroppedMetadata...),
	}
	if t.Existed || t.Duplicate {
		row.HTTPStatus = http.StatusOK
	}
	return row
}
