package weaviate

import (
	"context"
	"time"

	"github.com/google/uuid"

	pb "github.com/weaviate/weaviate/grpc/generated/protocol/v1"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// kept are the properties that an object is read with: all but its texts.
var kept = []string{
	propSession, propIdentity, propCreated, propPartition, propStarted, propVersion, propPipeline, propConsultant,
	propRepository, propDigestQ, propDigestA,
}

// request asks for the objects of a collection with some properties.
func request(collection string, limit int, properties ...string) *pb.SearchRequest {
	return &pb.SearchRequest{
		Collection: collection, Limit: uint32(limit), Uses_127Api: true, //nolint:gosec // it is bounded
		Properties: &pb.PropertiesRequest{NonRefProperties: properties},
		Metadata:   &pb.MetadataRequest{Uuid: true},
	}
}

// Near implements index.Objects. Weaviate compares a vector with each object that a filter lets through; of a graph, if
// these are fewer than 40,000. So a filter that lets all through makes a search exact. It also leaves out vectors whose
// objects are gone (docs/decisions.md#a-search-that-finds-too-little-is-asked-again): these take places of an answer.
func (w *Weaviate) Near(ctx context.Context, collection string, n index.Near) ([]projections.Hit, error) {
	through := number(propPartition, pb.Filters_OPERATOR_GREATER_THAN_EQUAL, 0)
	among := filter(n.Filter)
	if len(n.Among) > 0 {
		among = byID(n.Among)
	}
	hits, err := w.near(ctx, collection, n, among)
	if err == nil && among == nil && len(hits) < n.Limit {
		hits, err = w.near(ctx, collection, n, through)
	}
	return hits, err
}

func (w *Weaviate) near(
	ctx context.Context, collection string, n index.Near, among *pb.Filters,
) ([]projections.Hit, error) {
	req := request(collection, n.Limit, propSession, propIdentity)
	req.Metadata.Distance = true
	req.NearVector = &pb.NearVector{
		Targets: &pb.Targets{TargetVectors: []string{string(n.Half)}},
		Vectors: []*pb.Vectors{newVector(n.Half, n.Vector)},
	}
	req.Filters = among
	reply, err := w.api.Search(w.signed(ctx), req)
	if err != nil {
		return nil, failure("search", err)
	}
	out := make([]projections.Hit, 0, len(reply.GetResults()))
	for _, r := range reply.GetResults() {
		o, err := newObject(r)
		if err != nil {
			return nil, err
		}
		out = append(out, projections.Hit{
			TurnID: o.ID, SessionID: o.Session, IdentityID: o.Identity, Half: n.Half,
			Score: 1 - float64(r.GetMetadata().GetDistance()),
		})
	}
	return out, nil
}

// ByID implements index.Objects.
func (w *Weaviate) ByID(
	ctx context.Context, collection string, ids []uuid.UUID, vectors index.Vectors,
) (out []index.Object, err error) {
	for len(ids) > 0 && err == nil {
		n := min(len(ids), atOnce)
		req := request(collection, n, kept...)
		req.Filters = byID(ids[:n])
		if vectors == index.WithVectors {
			req.Metadata.Vectors = []string{string(projections.QuestionHalf), string(projections.AnswerHalf)}
		}
		var found []index.Object
		found, err = w.objects(ctx, req)
		out, ids = append(out, found...), ids[n:]
	}
	return out, err
}

// Page implements index.Objects.
func (w *Weaviate) Page(ctx context.Context, collection string, after uuid.UUID, limit int) ([]index.Object, error) {
	req := request(collection, limit, kept...)
	if req.After = after.String(); after == uuid.Nil {
		req.After = uuid.Nil.String()
	}
	return w.objects(ctx, req)
}

// Bare implements index.Objects.
func (w *Weaviate) Bare(ctx context.Context, collection string, partition, limit int) ([]index.Object, error) {
	req := request(collection, limit, kept...)
	bare := condition(propBare, pb.Filters_OPERATOR_EQUAL)
	bare.TestValue = &pb.Filters_ValueBoolean{ValueBoolean: true}
	req.Filters = all(
		number(propPartition, pb.Filters_OPERATOR_EQUAL, uint64(partition)), //nolint:gosec // never negative
		bare,
	)
	return w.objects(ctx, req)
}

func (w *Weaviate) objects(ctx context.Context, req *pb.SearchRequest) ([]index.Object, error) {
	reply, err := w.api.Search(w.signed(ctx), req)
	if err != nil {
		return nil, failure("read objects", err)
	}
	out := make([]index.Object, 0, len(reply.GetResults()))
	for _, r := range reply.GetResults() {
		o, err := newObject(r)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

func condition(name string, op pb.Filters_Operator) *pb.Filters {
	return &pb.Filters{
		Operator: op, Target: &pb.FilterTarget{Target: &pb.FilterTarget_Property{Property: name}},
	}
}

func number(name string, op pb.Filters_Operator, value uint64) *pb.Filters {
	f := condition(name, op)
	f.TestValue = &pb.Filters_ValueInt{ValueInt: int64(value)} //nolint:gosec // sequences and epochs are far smaller
	return f
}

func word(name, value string) *pb.Filters {
	f := condition(name, pb.Filters_OPERATOR_EQUAL)
	f.TestValue = &pb.Filters_ValueText{ValueText: value}
	return f
}

func date(op pb.Filters_Operator, at time.Time) *pb.Filters {
	f := condition(propCreated, op)
	f.TestValue = &pb.Filters_ValueText{ValueText: stamp(at)}
	return f
}

func byID(ids []uuid.UUID) *pb.Filters {
	f := condition("_id", pb.Filters_OPERATOR_CONTAINS_ANY)
	texts := &pb.TextArray{}
	for _, id := range ids {
		texts.Values = append(texts.Values, id.String())
	}
	f.TestValue = &pb.Filters_ValueTextArray{ValueTextArray: texts}
	return f
}

// filter returns the conditions of a search, nil if there are none.
func filter(f index.Filter) *pb.Filters {
	var of []*pb.Filters
	if f.IdentityID != "" {
		of = append(of, word(propIdentity, f.IdentityID))
	}
	if f.SessionID != "" {
		of = append(of, word(propSession, f.SessionID))
	}
	if !f.Since.IsZero() {
		of = append(of, date(pb.Filters_OPERATOR_GREATER_THAN_EQUAL, f.Since))
	}
	if !f.Until.IsZero() {
		of = append(of, date(pb.Filters_OPERATOR_LESS_THAN, f.Until))
	}
	return all(of...)
}

func all(of ...*pb.Filters) *pb.Filters {
	switch len(of) {
	case 0:
		return nil
	case 1:
		return of[0]
	default:
		return &pb.Filters{Operator: pb.Filters_OPERATOR_AND, Filters: of}
	}
}
