package index

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/projections"
)

// Object is a finalized turn in the index.
type Object struct {
	ID                uuid.UUID
	Session, Identity string
	Partition         int
	// StartSeq is the sequence of the turn's start, Version the turn's record version.
	StartSeq  uint64
	Version   int
	CreatedAt time.Time
	// PipelineName, Consultant and Repository are what the turn's start named, for those who read the store themselves.
	PipelineName, Consultant, Repository string
	Question, Answer                     Half
}

// Half is a half of a turn. Its texts are empty in what a store returns, and where the index keeps no texts.
type Half struct {
	Neutral, Translated string
	// Digest names the text and the model of the vector; empty if the half has no text. Vector is nil while the
	// embedder has not made it.
	Digest string
	Vector []float32
	// Refused: the embedder makes no vector of the text.
	Refused bool
}

func (h *Half) isBare() bool { return h.Digest != "" && h.Vector == nil && !h.Refused }

// Bare reports whether a half waits for its vector.
func (o *Object) Bare() bool { return o.Question.isBare() || o.Answer.isBare() }

// Collection is a collection of objects. Its mark says which index and generation it belongs to; a collection that the
// store has made by itself has no such mark.
type Collection struct{ Name, Mark string }

// Near asks for the objects of which a half is nearest to a vector. Among, if there are any, are the only objects that
// it looks at, at most 500.
type Near struct {
	Half   projections.Half
	Vector []float32
	Filter
	Among []uuid.UUID
	Limit int
}

// Filter bounds the objects of a search. Zero values are no bounds.
type Filter struct {
	IdentityID, SessionID string
	projections.Period
}

// Refused is the error of a store that did not take some objects of a Put. The error does not say why, since the
// store's own words may repeat a text.
type Refused struct{ IDs []uuid.UUID }

// Error names the first of the objects.
func (r *Refused) Error() string {
	return fmt.Sprintf("the store refuses %d objects, the first one is %s: its log may say why", len(r.IDs), r.IDs[0])
}

// Is reports whether a target is projections.ErrUnavailable: the store may take the objects later.
func (*Refused) Is(target error) bool { return target == projections.ErrUnavailable }

// Collections of a store. Names begin with Prefix. Errors are projections.ErrUnavailable: a retry may mend them.
type Collections interface {
	// List returns all collections whose names begin with Prefix.
	List(ctx context.Context) ([]Collection, error)
	Create(ctx context.Context, c Collection) error
	// Drop removes a collection with its files; a missing one is no error.
	Drop(ctx context.Context, name string) error
	// Serve points the alias, which readers from outside use, to a collection.
	Serve(ctx context.Context, name string) error
}

// Objects of a store's collections. No error holds a text of an object. Errors are projections.ErrUnavailable.
type Objects interface {
	// Put writes objects, over those that have their ids. It fails with Refused if the store answers and does not take
	// some of them. It has written the others, and may have written parts of the refused ones. What a Put has written
	// outlives a kill of the store once another Put has returned.
	Put(ctx context.Context, collection string, objects []Object) error
	// Delete removes objects. Missing ones are no error.
	Delete(ctx context.Context, collection string, ids []uuid.UUID) error
	// Near returns the nearest objects, the nearest first: their ids, the half, and as Score the cosine.
	Near(ctx context.Context, collection string, n Near) ([]projections.Hit, error)
	// ByID returns those of the objects that there are, in any order.
	ByID(ctx context.Context, collection string, ids []uuid.UUID, vectors Vectors) ([]Object, error)
	// Page returns up to limit objects after an id, in the order of the store.
	Page(ctx context.Context, collection string, after uuid.UUID, limit int) ([]Object, error)
	// Bare returns up to limit objects of a partition that wait for vectors.
	Bare(ctx context.Context, collection string, partition, limit int) ([]Object, error)
}

// Vectors says whether objects are returned with their vectors.
type Vectors bool

// The two ways.
const (
	WithVectors    Vectors = true
	WithoutVectors Vectors = false
)

// Store of an index.
type Store struct {
	Collections
	Objects
}

// Prefix begins the names of collections, and Alias is the name of the served one for readers from outside.
const (
	Alias  = "TurnledgerTurns"
	Prefix = Alias + "_"
)

// Embedder makes vectors of texts. Safe for concurrent use.
type Embedder interface {
	// Embed returns a vector for each text, nil for a text that it takes at no length. Its errors are
	// projections.ErrEmbedder.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Model names the model, with its dimensions if they are set. Vectors of different models can't be compared.
	Model() string
	// Dimensions returns how many numbers a vector has now.
	Dimensions(ctx context.Context) (int, error)
}
