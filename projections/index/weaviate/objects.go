package weaviate

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/weaviate/weaviate/grpc/generated/protocol/v1"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

const (
	// atOnce bounds the objects of one call.
	atOnce = 500
	// bytesAtOnce bounds the texts and vectors of one call that writes, unless one object has more. Weaviate refuses a
	// message of more than 100 MB.
	bytesAtOnce = 16 << 20
)

// Put implements index.Objects.
func (w *Weaviate) Put(ctx context.Context, collection string, objects []index.Object) error {
	var refused []uuid.UUID
	for len(objects) > 0 {
		n := share(objects)
		some, err := w.put(ctx, collection, objects[:n])
		if err != nil {
			return err
		}
		refused, objects = append(refused, some...), objects[n:]
	}
	if len(refused) > 0 {
		return &index.Refused{IDs: refused}
	}
	return nil
}

// share returns how many of the objects one call writes.
func share(objects []index.Object) int {
	bytes := 0
	for n := range objects {
		for _, h := range []*index.Half{&objects[n].Question, &objects[n].Answer} {
			bytes += len(h.Neutral) + len(h.Translated) + 4*len(h.Vector)
		}
		if n == atOnce || n > 0 && bytes > bytesAtOnce {
			return n
		}
	}
	return len(objects)
}

// put writes objects by one call, and returns which of them Weaviate refused.
func (w *Weaviate) put(
	ctx context.Context, collection string, objects []index.Object,
) (refused []uuid.UUID, err error) {
	req := &pb.BatchObjectsRequest{Objects: make([]*pb.BatchObject, 0, len(objects))}
	for i := range objects {
		req.Objects = append(req.Objects, w.message(collection, &objects[i]))
	}
	reply, err := w.api.BatchObjects(w.signed(ctx), req)
	if err != nil {
		return nil, failure("write objects", err)
	}
	for _, e := range reply.GetErrors() {
		if i := int(e.GetIndex()); i < len(objects) {
			refused = append(refused, objects[i].ID)
		}
	}
	return refused, nil
}

func (w *Weaviate) message(collection string, o *index.Object) *pb.BatchObject {
	fields := map[string]*structpb.Value{}
	text := func(name, value string) {
		if value != "" {
			fields[name] = structpb.NewStringValue(strings.ToValidUTF8(value, "\uFFFD"))
		}
	}
	number := func(name string, value uint64) { fields[name] = structpb.NewNumberValue(float64(value)) }
	text(propSession, o.Session)
	text(propIdentity, o.Identity)
	text(propCreated, stamp(o.CreatedAt))
	text(propPipeline, o.PipelineName)
	text(propConsultant, o.Consultant)
	text(propRepository, o.Repository)
	text(propDigestQ, o.Question.Digest)
	text(propDigestA, o.Answer.Digest)
	number(propPartition, uint64(o.Partition)) //nolint:gosec // never negative
	number(propStarted, o.StartSeq)
	number(propVersion, uint64(o.Version)) //nolint:gosec // never negative
	fields[propBare] = structpb.NewBoolValue(o.Bare())
	out := &pb.BatchObject{
		Uuid: o.ID.String(), Collection: collection,
		Properties: &pb.BatchObject_Properties{NonRefProperties: &structpb.Struct{Fields: fields}},
	}
	for half, h := range map[projections.Half]*index.Half{
		projections.QuestionHalf: &o.Question, projections.AnswerHalf: &o.Answer,
	} {
		if !w.cfg.WithoutTexts {
			text(textProps[half][0], h.Neutral)
			text(textProps[half][1], h.Translated)
		}
		if h.Vector != nil {
			out.Vectors = append(out.Vectors, newVector(half, h.Vector))
		}
	}
	return out
}

func newVector(half projections.Half, v []float32) *pb.Vectors {
	return &pb.Vectors{
		Name: string(half), VectorBytes: floats(v), Type: pb.Vectors_VECTOR_TYPE_SINGLE_FP32,
	}
}

func floats(v []float32) []byte {
	out := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(x))
	}
	return out
}

func fromFloats(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// stamp returns a time in the form of Weaviate; "" if there is none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Delete implements index.Objects.
func (w *Weaviate) Delete(ctx context.Context, collection string, ids []uuid.UUID) error {
	for len(ids) > 0 {
		n := min(len(ids), atOnce)
		reply, err := w.api.BatchDelete(w.signed(ctx), &pb.BatchDeleteRequest{
			Collection: collection, Filters: byID(ids[:n]),
		})
		if err != nil {
			return failure("delete objects", err)
		}
		if failed := reply.GetFailed(); failed > 0 {
			return projections.Unavailable(fmt.Errorf("weaviate: %d objects were not deleted", failed))
		}
		ids = ids[n:]
	}
	return nil
}

// newObject reads an object of an answer.
func newObject(r *pb.SearchResult) (o index.Object, err error) {
	fields := r.GetProperties().GetNonRefProps().GetFields()
	if o.ID, err = uuid.Parse(r.GetMetadata().GetId()); err != nil {
		return o, fmt.Errorf("weaviate: an object's id is no UUID: %w", err)
	}
	number := func(name string) uint64 { return uint64(fields[name].GetIntValue()) } //nolint:gosec // as it was written
	o.Session, o.Identity = fields[propSession].GetTextValue(), fields[propIdentity].GetTextValue()
	o.Partition, o.StartSeq = int(fields[propPartition].GetIntValue()), number(propStarted)
	o.Version = int(fields[propVersion].GetIntValue())
	o.PipelineName, o.Consultant = fields[propPipeline].GetTextValue(), fields[propConsultant].GetTextValue()
	o.Repository = fields[propRepository].GetTextValue()
	o.Question.Digest, o.Answer.Digest = fields[propDigestQ].GetTextValue(), fields[propDigestA].GetTextValue()
	if at := fields[propCreated].GetDateValue(); at != "" {
		if o.CreatedAt, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return o, fmt.Errorf("weaviate: the time of object %s: %w", o.ID, err)
		}
	}
	for _, v := range r.GetMetadata().GetVectors() {
		switch projections.Half(v.GetName()) {
		case projections.QuestionHalf:
			o.Question.Vector = fromFloats(v.GetVectorBytes())
		case projections.AnswerHalf:
			o.Answer.Vector = fromFloats(v.GetVectorBytes())
		}
	}
	return o, nil
}
