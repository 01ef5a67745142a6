// Package memorytest is a Supermemory for tests: both versions of its API, over one set of documents.
package memorytest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Document as it was stored.
type Document struct {
	Scope, ID, Content string
	// Puts counts how often the document was stored.
	Puts     int
	metadata json.RawMessage
}

// Server is the service.
type Server struct {
	*httptest.Server

	mu   sync.Mutex
	docs map[string]*Document
	// fail is called for each request. A status above 0 is sent at once in place of an answer.
	fail func(r *http.Request, body string) int
}

// New starts a service that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{docs: map[string]*Document{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// Fail sets the function that may fail requests; nil lets all requests through.
func (s *Server) Fail(f func(r *http.Request, body string) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// Documents returns what is stored, in the order of contents.
func (s *Server) Documents() (out []Document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.docs {
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b Document) int { return cmp.Compare(a.Content, b.Content) })
	return out
}

// request has the fields of both versions' request bodies.
type request struct {
	ID            string          `json:"id"`
	CustomID      string          `json:"customId"`
	Content       string          `json:"content"`
	ContainerTag  string          `json:"containerTag"`
	ContainerTags []string        `json:"containerTags"`
	Metadata      json.RawMessage `json:"metadata"`
	IDs           []string        `json:"ids"`
	Query         string          `json:"query"`
	Q             string          `json:"q"`
	Limit         int             `json:"limit"`
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	var raw json.RawMessage
	var in request
	if json.NewDecoder(r.Body).Decode(&raw) == nil && json.Unmarshal(raw, &in) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		if status := fail(r, string(raw)); status > 0 {
			w.WriteHeader(status)
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if path, ok := strings.CutPrefix(r.URL.Path, "/ns/"); ok {
		scope, call, _ := strings.Cut(path, "/")
		s.v5(w, r.Method, scope, call, in)
		return
	}
	s.v4(w, r.Method+" "+r.URL.Path, in)
}

func (s *Server) v5(w http.ResponseWriter, method, scope, call string, in request) {
	id, one := strings.CutPrefix(call, "document/")
	switch {
	case method == http.MethodPost && call == "document":
		s.put(w, scope+"/"+in.ID, Document{Scope: scope, ID: in.ID, Content: in.Content, metadata: in.Metadata})
	case method == http.MethodDelete && call == "document":
		for _, id := range in.IDs {
			delete(s.docs, scope+"/"+id)
		}
		answer(w, map[string]any{"count": len(in.IDs), "errors": []any{}})
	case method == http.MethodGet && one:
		s.get(w, scope+"/"+id)
	case method == http.MethodDelete && call == "":
		s.forget(w, scope)
	case method == http.MethodPost && call == "search":
		s.search(w, scope, in.Query, in.Limit)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// v4 serves the API v4, which stores one document under an id, whatever its tag.
func (s *Server) v4(w http.ResponseWriter, call string, in request) {
	id, _ := strings.CutPrefix(call[strings.Index(call, " ")+1:], "/v3/documents/")
	switch {
	case call == "POST /v3/documents":
		s.put(w, in.CustomID, Document{Scope: in.ContainerTag, ID: in.CustomID, Content: in.Content,
			metadata: in.Metadata})
	case call == "DELETE /v3/documents/bulk":
		s.forget(w, in.ContainerTags...)
	case strings.HasPrefix(call, "DELETE "):
		delete(s.docs, id)
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(call, "GET "):
		s.get(w, id)
	case call == "POST /v4/search":
		s.search(w, in.ContainerTag, in.Q, in.Limit)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *Server) put(w http.ResponseWriter, key string, d Document) {
	if was := s.docs[key]; was != nil {
		d.Puts = was.Puts
	}
	d.Puts++
	s.docs[key] = &d
	answer(w, map[string]any{"id": d.ID, "status": "queued"})
}

func (s *Server) get(w http.ResponseWriter, key string) {
	if s.docs[key] == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answer(w, map[string]any{"id": key})
}

func (s *Server) forget(w http.ResponseWriter, scopes ...string) {
	for key, d := range s.docs {
		if slices.Contains(scopes, d.Scope) {
			delete(s.docs, key)
		}
	}
	answer(w, map[string]any{"success": true})
}

// search finds documents that share a word with the query.
func (s *Server) search(w http.ResponseWriter, scope, query string, limit int) {
	results := []any{}
	for _, d := range s.docs {
		for word := range strings.FieldsSeq(strings.ToLower(query)) {
			if d.Scope == scope && len(results) < limit && strings.Contains(strings.ToLower(d.Content), word) {
				results = append(results, map[string]any{"id": "mem_" + d.ID, "memory": d.Content, "similarity": 0.9,
					"metadata": d.metadata})
				break
			}
		}
	}
	answer(w, map[string]any{"results": results})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
