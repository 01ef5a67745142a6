package index

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/projections"
)

const (
	// embedPause is how long the embedder is left alone after it failed, so that batches don't wait for it one by one.
	embedPause = 10 * time.Second
	// otherPause is the same for a claim whose collection can't take the length of the vectors that it made.
	otherPause = time.Minute
	// asked bounds the texts that are asked for at once, and askedFirst those of a batch that are asked for first, so
	// that an embedder that hangs is noticed early.
	asked, askedFirst = 384, 32
	// batchPatience is how long a batch waits for the vectors of a text, since a deletion may wait behind it, and
	// sweepPatience how long a sweep does, which holds up nothing. Each text more may take textPatience, as on a
	// processor.
	batchPatience = 2 * time.Second
	sweepPatience = 30 * time.Second
	textPatience  = 50 * time.Millisecond
)

// made are vectors by the digests of their texts; nil for a text that the embedder refuses.
type made map[string][]float32

// source makes vectors that objects lack; nil if it can't now.
type source func(ctx context.Context, objects []Object) made

// embedder returns the embedder as a source that has so long for some texts.
func (v *View) embedder(patience time.Duration) source {
	return func(ctx context.Context, objects []Object) made { return v.embed(ctx, objects, patience) }
}

// embed has the embedder make the vectors that objects lack. If it fails, it is left alone for a while, and what it has
// made before counts.
func (v *View) embed(ctx context.Context, objects []Object, patience time.Duration) made {
	var texts, digests []string
	known := map[string]bool{}
	for _, h := range halvesOf(objects) {
		if h.isBare() && !known[h.Digest] {
			known[h.Digest] = true
			texts, digests = append(texts, v.cfg.embedded(h)), append(digests, h.Digest)
		}
	}
	if len(texts) > 0 && !v.mayEmbed() {
		return nil
	}
	out := make(made, len(texts))
	for len(out) < len(texts) {
		part := texts[len(out):min(len(texts), len(out)+asked)]
		if len(out) == 0 {
			part = texts[:min(len(texts), askedFirst)]
		}
		vectors, err := v.embedSome(ctx, part, patience)
		if err != nil {
			v.leftBare(err)
			v.askAgain(v.cfg.Now().Add(embedPause))
			if len(out) == 0 {
				return nil
			}
			break
		}
		v.askAgain(time.Time{})
		for i, digest := range digests[len(out) : len(out)+len(part)] {
			out[digest] = vectors[i]
		}
	}
	return out
}

func (v *View) embedSome(ctx context.Context, texts []string, patience time.Duration) ([][]float32, error) {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(len(texts))*textPatience)
	defer cancel()
	return v.cfg.Embedder.Embed(ctx, texts)
}

// askAgain notes when the embedder may be asked again.
func (v *View) askAgain(at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.embedAgain = at
}

// fill puts vectors that were made into objects. If these have another length than the claim's, the objects stay bare,
// and Sweep asks again.
func (v *View) fill(c *claim, objects []Object, vectors made) {
	if !alike(vectors, c.dimensions) {
		v.leaveOther(c)
		return
	}
	for _, h := range halvesOf(objects) {
		x, there := vectors[h.Digest]
		if !there || !h.isBare() {
			continue
		}
		h.Vector = x
		how := "made"
		if h.Refused = x == nil; h.Refused {
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

// alike reports whether all vectors have the dimensions that are wanted; 0: those of any.
func alike(vectors made, wanted int) bool {
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
	c.embedAgain = v.cfg.Now().Add(otherPause)
}

// mayEmbedFor reports whether a claim's collection may take what the embedder makes.
func (v *View) mayEmbedFor(c *claim) bool { return !v.cfg.Now().Before(c.embedAgain) }

// mayEmbed reports whether the embedder may be asked.
func (v *View) mayEmbed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.cfg.Now().Before(v.embedAgain)
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

// compareEvery is the least time between two comparisons of lengths. Each one may be a call of the embedder.
const compareEvery = time.Minute

// compareLengths notes whether the embedder makes vectors of another length than the served generation has. While
// nothing is written, nothing else finds out.
func (v *View) compareLengths(ctx context.Context) error {
	p, _, err := v.served(ctx)
	if err != nil || p.Model != v.cfg.Embedder.Model() || !v.mayEmbed() || !v.mayCompare() {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, dimensionsDeadline)
	defer cancel()
	makes, err := v.cfg.Embedder.Dimensions(asking)
	if err != nil {
		return nil //nolint:nilerr // what is known of it stays so
	}
	has, err := v.dimensions(ctx, p.collection().Name)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.otherLength = 0
	if has != 0 && has != makes {
		v.otherLength = p.Generation
	}
	return nil
}

// mayCompare reports whether the lengths are to be compared now, once each time.
func (v *View) mayCompare() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.cfg.Now()
	if now.Before(v.compareAgain) {
		return false
	}
	v.compareAgain = now.Add(compareEvery)
	return true
}

// dimensions returns the length of the first vector that a collection has; 0 if it has none.
func (v *View) dimensions(ctx context.Context, collection string) (int, error) {
	for after, most := uuid.Nil, 10; ; most = sweptAtOnce { // mostly the first one has
		page, err := v.cfg.Store.Page(ctx, collection, after, most)
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
