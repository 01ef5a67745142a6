// Package embeddings makes vectors of texts by an OpenAI-compatible endpoint (/v1/embeddings).
package embeddings

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/services/model/endpoint"
)

// Config of a Client.
type Config struct {
	// URL of the API, including its version: https://api.openai.com/v1.
	URL string
	// Key may be empty.
	Key string
	// Name of the model. Dimensions of its vectors; 0 leaves them to the model.
	Name       string
	Dimensions int
	// Timeout bounds one try of a call; 20 s by default.
	Timeout time.Duration
	// Registry takes the metrics; nil: none.
	Registry prometheus.Registerer
}

const (
	// textsAtOnce and charsAtOnce bound the texts of one call.
	textsAtOnce = 96
	charsAtOnce = 200_000
	// callsAtOnce bounds the calls in flight.
	callsAtOnce    = 4
	defaultTimeout = 20 * time.Second
)

// Client of an endpoint. Safe for concurrent use.
type Client struct {
	cfg    Config
	api    endpoint.Caller
	slots  chan struct{}
	calls  *prometheus.CounterVec
	tokens prometheus.Counter
}

var _ index.Embedder = (*Client)(nil)

// New makes a client; it does no I/O.
func New(cfg Config) *Client {
	c := &Client{
		cfg: cfg, slots: make(chan struct{}, callsAtOnce),
		api: endpoint.NewCaller(cfg.URL, cfg.Key, cmp.Or(cfg.Timeout, defaultTimeout)),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "turnledger_embeddings_calls_total", Help: "Calls of the embeddings endpoint, by outcome.",
		}, []string{"outcome"}),
		tokens: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "turnledger_embeddings_tokens_total", Help: "Tokens that the embeddings endpoint has counted.",
		}),
	}
	for _, outcome := range []string{callDone, callFailed} { // an alert compares them, also if one never happened
		c.calls.WithLabelValues(outcome)
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(c.calls, c.tokens)
	}
	return c
}

// Outcomes of a call.
const callDone, callFailed = "done", "failed"

// Model implements index.Embedder.
func (c *Client) Model() string {
	if c.cfg.Dimensions == 0 {
		return c.cfg.Name
	}
	return c.cfg.Name + "/" + strconv.Itoa(c.cfg.Dimensions)
}

// Dimensions implements index.Embedder. It asks the endpoint unless they are set.
func (c *Client) Dimensions(ctx context.Context) (int, error) {
	if c.cfg.Dimensions > 0 {
		return c.cfg.Dimensions, nil
	}
	vectors, err := c.Embed(ctx, []string{plainText})
	if err != nil {
		return 0, err
	}
	return len(vectors[0]), nil
}

// Embed implements index.Embedder. All processes of a host may call the endpoint at once, but one client makes at most
// four calls at a time.
func (c *Client) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	g, ctx := errgroup.WithContext(ctx)
	for from := 0; from < len(texts); {
		to := share(texts, from)
		part, into := texts[from:to], out[from:to]
		from = to
		g.Go(func() error {
			select {
			case c.slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			defer func() { <-c.slots }()
			return c.call(ctx, part, into)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(projections.ErrEmbedder, err)
	}
	return out, nil
}

// share returns the end of the texts that one call takes.
func share(texts []string, from int) int {
	chars := 0
	for to := from; to < len(texts); to++ {
		if chars += len(texts[to]); to > from && (to-from == textsAtOnce || chars > charsAtOnce) {
			return to
		}
	}
	return len(texts)
}

// call embeds texts by one call, or by several where the endpoint refuses some of the texts.
func (c *Client) call(ctx context.Context, texts []string, into [][]float32) error {
	err := c.once(ctx, texts, into)
	if endpoint.Unfit(err) && c.once(ctx, []string{plainText}, make([][]float32, 1)) == nil {
		err = c.apart(ctx, texts, into)
	}
	return err
}

// plainText is a text that no endpoint refuses for what it says. An endpoint that refuses it refuses all.
const plainText = "a"

// leastChars is the length from which a text is not cut further.
const leastChars = 200

// apart embeds texts of which the endpoint refuses some: one half of them after the other, and of a text alone as much
// as the endpoint takes. A text that it refuses however short has no vector.
func (c *Client) apart(ctx context.Context, texts []string, into [][]float32) error {
	if len(texts) == 1 {
		if texts = firstHalf(texts[0]); texts == nil {
			return nil
		}
		err := c.once(ctx, texts, into)
		if endpoint.Unfit(err) {
			err = c.apart(ctx, texts, into)
		}
		return err
	}
	n := len(texts) / 2
	for _, half := range [][2]int{{0, n}, {n, len(texts)}} {
		some, at := texts[half[0]:half[1]], into[half[0]:half[1]]
		err := c.once(ctx, some, at)
		if endpoint.Unfit(err) {
			err = c.apart(ctx, some, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// firstHalf returns the first half of a text, or nil if the text is so short that its length is not at fault.
func firstHalf(text string) []string {
	chars := []rune(text)
	if len(chars) <= leastChars {
		return nil
	}
	return []string{string(chars[:len(chars)/2])}
}

func (c *Client) once(ctx context.Context, texts []string, into [][]float32) error {
	body := map[string]any{"model": c.cfg.Name, "input": texts, "encoding_format": "base64"}
	if c.cfg.Dimensions > 0 {
		body["dimensions"] = c.cfg.Dimensions
	}
	raw, err := c.api.Call(ctx, http.MethodPost, "/embeddings", body)
	if err == nil {
		err = c.read(raw, into)
	}
	outcome := callDone
	if err != nil {
		outcome = callFailed
	}
	c.calls.WithLabelValues(outcome).Inc()
	return err
}

// answer is what an endpoint sends: vectors as base64, or as numbers from those that know no other form.
type answer struct {
	Data []struct {
		Index     int             `json:"index"`
		Embedding json.RawMessage `json:"embedding"`
	} `json:"data"`
	Usage struct {
		TotalTokens float64 `json:"total_tokens"`
	} `json:"usage"`
}

func (c *Client) read(raw []byte, into [][]float32) error {
	var a answer
	if json.Unmarshal(raw, &a) != nil {
		return errForm
	}
	for _, d := range a.Data {
		if d.Index < 0 || d.Index >= len(into) {
			return errForm
		}
		v, err := vector(d.Embedding)
		if err != nil {
			return err
		}
		if c.cfg.Dimensions > 0 && len(v) != c.cfg.Dimensions {
			return fmt.Errorf("the endpoint's vectors have %d dimensions, and not the %d of "+
				"TURNLEDGER_EMBED_DIMENSIONS", len(v), c.cfg.Dimensions)
		}
		into[d.Index] = v
	}
	for _, v := range into {
		if len(v) == 0 {
			return errForm
		}
	}
	c.tokens.Add(a.Usage.TotalTokens)
	return nil
}

var errForm = errors.New("the endpoint's answer has another form than that of /v1/embeddings")

func vector(raw json.RawMessage) (out []float32, err error) {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		if json.Unmarshal(raw, &out) != nil {
			return nil, errForm
		}
		return out, nil
	}
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(packed)%4 != 0 {
		return nil, errForm
	}
	out = make([]float32, len(packed)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(packed[4*i:]))
	}
	return out, nil
}
