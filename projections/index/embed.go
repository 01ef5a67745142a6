package index

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/projections"
)

const (
	// embedPause is how long the embedder is left alone after it failed, so that deletions don't wait for it batch by
	// batch.
	embedPause = 10 * time.Second
	// otherPause is the same for a claim whose collection can't take the length of the vectors that it made.
	otherPause = time.Minute
)

// embed makes the vectors that objects lack. If the embedder fails, or makes vectors of another length than the
// claim's, the objects stay bare, and Sweep asks again.
func (v *View) embed(ctx context.Context, c *claim, objects []Object) {
	var texts []string
	at := map[string]int{} // digests
	var bare []*Half
	for _, h := range halvesOf(objects) {
		if !h.isBare() {
			continue
		}
		bare = append(bare, h)
		if _, known := at[h.Digest]; !known {
			at[h.Digest] = len(texts)
			texts = append(texts, v.cfg.embedded(h))
		}
	}
	if len(texts) == 0 || !v.mayEmbed() || !c.mayEmbed() {
		return
	}
	vectors, err := v.cfg.Embedder.Embed(ctx, texts)
	if err != nil {
		v.leftBare(err)
		v.mu.Lock()
		v.embedAgain = time.Now().Add(embedPause)
		v.mu.Unlock()
		return
	}
	if !alike(vectors, c.dimensions) {
		v.leaveOther(c)
		return
	}
	for _, h := range bare {
		h.Vector = vectors[at[h.Digest]]
		how := "made"
		if h.Refused = h.Vector == nil; h.Refused {
			how = "refused"
		}
		v.metrics.vectors.WithLabelValues(how).Inc()
	}
}

// halvesOf returns the halves of objects.
func halvesOf(objects []Object) (out []*Half) {
	for i := range objects {
		out = append(out, &objects[i].Question, &objects[i].Answer)
	}
	return out
}

// alike reports whether all vectors have the dimensions that are wanted; 0: those of the first.
func alike(vectors [][]float32, wanted int) bool {
	for _, x := range vectors {
		if x == nil {
			continue
		}
		if wanted == 0 {
			wanted = len(x)
		}
		if len(x) != wanted {
			return false
		}
	}
	return true
}

func (v *View) leftBare(err error) {
	v.cfg.Logger.Warn("turns are written to the index without vectors, which are added later", "err", err)
}

// leaveOther leaves the embedder alone for a while, for one claim: a rebuild beside it can take the vectors.
func (v *View) leaveOther(c *claim) {
	v.leftBare(projections.ErrOtherModel)
	c.embedAgain = time.Now().Add(otherPause)
}

func (c *claim) mayEmbed() bool { return !time.Now().Before(c.embedAgain) }

func (v *View) mayEmbed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !time.Now().Before(v.embedAgain)
}

// fits reports whether a vector has so many dimensions; 0: any.
func (h *Half) fits(dimensions int) bool { return dimensions == 0 || len(h.Vector) == dimensions }

// stripOthers takes vectors from objects that the collection can't take, since its own have another length. It reports
// whether there were any.
func (v *View) stripOthers(ctx context.Context, c *claim, objects []Object) (stripped bool, err error) {
	own, err := v.dimensions(ctx, c.of.collection().Name)
	if err != nil {
		return false, err
	}
	for _, h := range halvesOf(objects) {
		if h.Vector != nil && !h.fits(own) {
			h.Vector, stripped = nil, true
		}
	}
	if stripped {
		v.leaveOther(c)
	}
	return stripped, nil
}

// dimensions returns the length of the first vector that a collection has; 0 if it has none.
func (v *View) dimensions(ctx context.Context, collection string) (int, error) {
	for after := uuid.Nil; ; {
		page, err := v.cfg.Store.Page(ctx, collection, after, sweptAtOnce)
		if err != nil || len(page) == 0 {
			return 0, err
		}
		var ids []uuid.UUID
		for i := range page {
			after = page[i].ID
			ids = append(ids, after)
		}
		have, err := v.cfg.Store.ByID(ctx, collection, ids, WithVectors)
		if err != nil {
			return 0, err
		}
		for _, h := range halvesOf(have) {
			if h.Vector != nil {
				return len(h.Vector), nil
			}
		}
	}
}
