// Package embeddingstest is an endpoint of embeddings for tests: it speaks OpenAI's /v1/embeddings, and its vectors are
// signed hashes of the words and the character n-grams of a text. So texts with the same words are near each other, in
// any script; it knows nothing of what words mean.
package embeddingstest

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode"
)

// Dimensions of the vectors, unless a request asks for others.
const Dimensions = 256

// Endpoint of embeddings.
type Endpoint struct {
	server *httptest.Server
	down   atomic.Int32
	texts  atomic.Int64
	calls  atomic.Int64
	// numbers: vectors are sent as numbers, whatever the request asks for.
	numbers atomic.Bool
	// refuse, where not nil, chooses texts with which no call is taken.
	refuse atomic.Pointer[func(text string) bool]
	// hanging, where not nil, is what calls wait for.
	mu      sync.Mutex
	hanging *pause
	// dimensions, where not 0, are those of every vector, whatever the request asks for.
	dimensions atomic.Int32
}

// pause holds calls up until it ends.
type pause struct {
	end   chan struct{}
	calls sync.WaitGroup
}

// Start runs an endpoint until t ends.
func Start(t testing.TB) *Endpoint {
	e := &Endpoint{}
	e.server = httptest.NewServer(e)
	t.Cleanup(e.server.Close)
	t.Cleanup(e.Resume)
	return e
}

// URL of the API, with its version.
func (e *Endpoint) URL() string { return e.server.URL + "/v1" }

// Fail makes the endpoint answer with a status; 0: it works again.
func (e *Endpoint) Fail(status int) { e.down.Store(int32(status)) }

// Hang makes the endpoint take calls and answer none until Resume.
func (e *Endpoint) Hang() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hanging = &pause{end: make(chan struct{})}
}

// Resume makes the endpoint answer again, also the calls that hang, whether or not their callers still wait. When it
// returns, these are counted.
func (e *Endpoint) Resume() {
	e.mu.Lock()
	hanging := e.hanging
	e.hanging = nil
	e.mu.Unlock()
	if hanging != nil {
		close(hanging.end)
		hanging.calls.Wait()
	}
}

// hang returns once no pause holds the call up. The call ends by calling done.
func (e *Endpoint) hang() (done func()) {
	e.mu.Lock()
	hanging := e.hanging
	if hanging != nil {
		hanging.calls.Add(1)
	}
	e.mu.Unlock()
	if hanging == nil {
		return func() {}
	}
	<-hanging.end
	return hanging.calls.Done
}

// Refuse makes the endpoint answer 400 to each call with a text that is chosen, as an endpoint does to a text that is
// too long for its model.
func (e *Endpoint) Refuse(chosen func(text string) bool) { e.refuse.Store(&chosen) }

// SendNumbers makes the endpoint send vectors as numbers only.
func (e *Endpoint) SendNumbers() { e.numbers.Store(true) }

// Answer makes the endpoint answer with vectors of so many dimensions, whatever the request asks for.
func (e *Endpoint) Answer(dimensions int) { e.dimensions.Store(int32(dimensions)) }

// Texts returns how many texts were embedded, and Calls how many calls came.
func (e *Endpoint) Texts() int { return int(e.texts.Load()) }

// Calls returns how many calls came.
func (e *Endpoint) Calls() int { return int(e.calls.Load()) }

// ServeHTTP implements http.Handler.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.calls.Add(1)
	defer e.hang()()
	if status := int(e.down.Load()); status != 0 {
		http.Error(w, `{"error":{"message":"down"}}`, status)
		return
	}
	var in struct {
		Input      []string `json:"input"`
		Dimensions int      `json:"dimensions"`
		Format     string   `json:"encoding_format"`
	}
	if r.URL.Path != "/v1/embeddings" || json.NewDecoder(r.Body).Decode(&in) != nil {
		http.Error(w, `{"error":{"message":"not understood"}}`, http.StatusBadRequest)
		return
	}
	if refuse := e.refuse.Load(); refuse != nil && slices.ContainsFunc(in.Input, *refuse) {
		http.Error(w, `{"error":{"message":"a text is too long for the model"}}`, http.StatusBadRequest)
		return
	}
	in.Dimensions = cmp.Or(int(e.dimensions.Load()), in.Dimensions, Dimensions)
	type datum struct {
		Index     int `json:"index"`
		Embedding any `json:"embedding"`
	}
	data, tokens := []datum{}, 0
	for i, text := range in.Input {
		v := Vector(text, in.Dimensions)
		tokens += len(strings.Fields(text))
		if in.Format == "base64" && !e.numbers.Load() {
			raw := make([]byte, 4*len(v))
			for i, x := range v {
				binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(x))
			}
			data = append(data, datum{i, base64.StdEncoding.EncodeToString(raw)})
			continue
		}
		data = append(data, datum{i, v})
	}
	e.texts.Add(int64(len(in.Input)))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"object": "list", "data": data, "usage": map[string]int{"total_tokens": tokens, "prompt_tokens": tokens},
	})
}

// Vector returns the vector of a text, of length 1.
func Vector(text string, dimensions int) []float32 {
	v := make([]float32, dimensions)
	add := func(feature string, weight float32) {
		h := fnv.New64a()
		_, _ = h.Write([]byte(feature))
		sum := h.Sum64()
		if sum>>63 == 1 {
			weight = -weight
		}
		v[sum%uint64(dimensions)] += weight
	}
	text = strings.ToLower(text)
	between := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	for _, word := range strings.FieldsFunc(text, between) {
		add("w"+word, 1)
		runes := []rune(word)
		for n := 2; n <= 3; n++ {
			for i := 0; i+n <= len(runes); i++ {
				add("g"+string(runes[i:i+n]), 0.4)
			}
		}
	}
	sum := float32(0)
	for _, x := range v {
		sum += x * x
	}
	if sum == 0 {
		v[0], sum = 1, 1
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(float64(sum)))
	}
	return v
}
