package weaviate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// class is a collection in the form of the REST API.
type class struct {
	Class        string                 `json:"class"`
	Description  string                 `json:"description"`
	VectorConfig map[string]vectorIndex `json:"vectorConfig,omitempty"`
	Properties   []property             `json:"properties,omitempty"`
}

type vectorIndex struct {
	Vectorizer map[string]struct{} `json:"vectorizer"`
	IndexType  string              `json:"vectorIndexType"`
	Index      flat                `json:"vectorIndexConfig"`
}

// flat compares a vector with all of a collection, rounded ones first, and the best of these with the true ones.
type flat struct {
	Distance string  `json:"distance"`
	Rounded  rounded `json:"rq"`
}

// rounded vectors are in the server's memory.
type rounded struct {
	Enabled bool `json:"enabled"`
	Cached  bool `json:"cache"`
	Bits    int  `json:"bits"`
	// Best is how many of the nearest are compared with the true vectors.
	Best int `json:"rescoreLimit"`
}

type property struct {
	Name         string   `json:"name"`
	DataType     []string `json:"dataType"`
	Description  string   `json:"description,omitempty"`
	Tokenization string   `json:"tokenization,omitempty"`
	Filterable   bool     `json:"indexFilterable"`
	Searchable   bool     `json:"indexSearchable"`
	Range        bool     `json:"indexRangeFilters"`
}

// The properties of an object.
const (
	propSession    = "session_id"
	propIdentity   = "identity_id"
	propCreated    = "created_at"
	propPartition  = "partition"
	propStarted    = "started"
	propVersion    = "record_version"
	propPipeline   = "pipeline_name"
	propConsultant = "consultant"
	propRepository = "repository"
	propBare       = "bare"
	propDigestQ    = "question_digest"
	propDigestA    = "answer_digest"
)

// textProps are the names of the texts of a half: neutral and translated.
var textProps = map[projections.Half][2]string{
	projections.QuestionHalf: {"question_neutral", "question_translated"},
	projections.AnswerHalf:   {"answer_neutral", "answer_translated"},
}

const (
	// roundedBits of each number: of a million turns with 1,536 numbers a vector the server holds 400 MB.
	roundedBits = 1
	// roundedBest finds 0.998 of the ten nearest of 8,255 real questions among all (docs/benchmarks.md).
	roundedBest = 500
)

// newClass makes each property filterable that is filtered by, here or by readers from outside: each one more costs a
// write an object. Comparisons go by Range.
func newClass(c index.Collection) class {
	word := func(name string, filterable bool) property {
		return property{Name: name, DataType: []string{"text"}, Tokenization: "field", Filterable: filterable}
	}
	all := vectorIndex{map[string]struct{}{"none": {}}, "flat", flat{
		Distance: "cosine", Rounded: rounded{Enabled: true, Cached: true, Bits: roundedBits, Best: roundedBest},
	}}
	out := class{
		Class: c.Name, Description: c.Mark,
		VectorConfig: map[string]vectorIndex{
			string(projections.QuestionHalf): all, string(projections.AnswerHalf): all,
		},
		Properties: []property{
			word(propSession, true), word(propIdentity, true),
			{Name: propCreated, DataType: []string{"date"}, Filterable: true, Range: false},
			{Name: propPartition, DataType: []string{"int"}, Filterable: true},
			{Name: propStarted, DataType: []string{"int"}}, {Name: propVersion, DataType: []string{"int"}},
			word(propPipeline, true), word(propConsultant, true), word(propRepository, true),
			word(propDigestQ, false), word(propDigestA, false),
			{Name: propBare, DataType: []string{"boolean"}, Filterable: true},
		},
	}
	for _, half := range []projections.Half{projections.QuestionHalf, projections.AnswerHalf} {
		for _, name := range textProps[half] {
			out.Properties = append(out.Properties, word(name, false))
		}
	}
	return out
}

// List implements index.Collections.
func (w *Weaviate) List(ctx context.Context) ([]index.Collection, error) {
	var found struct{ Classes []class }
	if _, err := w.call(ctx, http.MethodGet, "/v1/schema", nil, &found); err != nil {
		return nil, err
	}
	var out []index.Collection
	for _, c := range found.Classes {
		if strings.HasPrefix(c.Class, index.Prefix) {
			out = append(out, index.Collection{Name: c.Class, Mark: c.Description})
		}
	}
	return out, nil
}

// Create implements index.Collections.
func (w *Weaviate) Create(ctx context.Context, c index.Collection) error {
	_, err := w.call(ctx, http.MethodPost, "/v1/schema", newClass(c), nil)
	return err
}

// Drop implements index.Collections.
func (w *Weaviate) Drop(ctx context.Context, name string) error {
	_, err := w.call(ctx, http.MethodDelete, "/v1/schema/"+url.PathEscape(name), nil, nil)
	return err
}

// Serve implements index.Collections.
func (w *Weaviate) Serve(ctx context.Context, name string) error {
	type alias struct {
		Alias string `json:"alias,omitempty"`
		Class string `json:"class"`
	}
	var now alias
	answered, err := w.call(ctx, http.MethodGet, "/v1/aliases/"+index.Alias, nil, &now, http.StatusNotFound)
	switch {
	case err != nil:
		return err
	case answered == http.StatusNotFound:
		_, err = w.call(ctx, http.MethodPost, "/v1/aliases", alias{index.Alias, name}, nil)
	case now.Class != name:
		_, err = w.call(ctx, http.MethodPut, "/v1/aliases/"+index.Alias, alias{Class: name}, nil)
	}
	return err
}

// call makes a call of the REST API, and returns its status: a success, or one of those that may come.
func (w *Weaviate) call(
	ctx context.Context, method, path string, body, answer any, may ...int,
) (answered int, err error) {
	defer func() {
		if err != nil {
			err = projections.Unavailable(fmt.Errorf("weaviate: %s %s: %w", method, path, err))
		}
	}()
	raw, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(w.cfg.URL, "/")+path, bytes.NewReader(raw))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if w.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+w.cfg.Key)
	}
	resp, err := w.rest.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusBadRequest {
		if slices.Contains(may, resp.StatusCode) {
			return resp.StatusCode, nil
		}
		// These calls are about collections, so that what Weaviate says holds no text of a turn.
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return 0, fmt.Errorf("%s: %s", resp.Status, why)
	}
	if answer == nil {
		return resp.StatusCode, nil
	}
	return resp.StatusCode, json.NewDecoder(resp.Body).Decode(answer)
}
