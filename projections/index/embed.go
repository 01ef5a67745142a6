package index

import (
	"context"
	"time"
)

// embedPause is how long the embedder is left alone after it failed, so that deletions don't wait for it batch by
// batch.
const embedPause = 10 * time.Second

// embed makes the vectors that objects lack. If the embedder fails, the objects stay bare, and Sweep asks again.
func (v *View) embed(ctx context.Context, objects []Object) {
	var texts []string
	at := map[string]int{} // digests
	var bare []*Half
	for i := range objects {
		for _, h := range []*Half{&objects[i].Question, &objects[i].Answer} {
			if !h.isBare() {
				continue
			}
			bare = append(bare, h)
			if _, known := at[h.Digest]; !known {
				at[h.Digest] = len(texts)
				texts = append(texts, v.cfg.embedded(h))
			}
		}
	}
	if len(texts) == 0 || !v.mayEmbed() {
		return
	}
	vectors, err := v.cfg.Embedder.Embed(ctx, texts)
	if err != nil {
		v.cfg.Logger.Warn("turns are written to the index without vectors, which are added later", "texts", len(texts),
			"err", err)
		v.mu.Lock()
		v.embedAgain = time.Now().Add(embedPause)
		v.mu.Unlock()
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

func (v *View) mayEmbed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !time.Now().Before(v.embedAgain)
}
