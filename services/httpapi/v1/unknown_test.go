package v1_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/read"
)

// mistake is a request that says something that its call does not know, and the field that the refusal names.
type mistake struct {
	query, field string
	body         any
}

// mistakesOf are those of a call of the OpenAPI document.
func mistakesOf(op map[string]any) (out []mistake) {
	var names []string
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		if p := p.(map[string]any); p["in"] == "query" {
			names = append(names, p["name"].(string))
		}
	}
	out = append(out, mistake{query: "?unknown=x", field: "unknown"}, mistake{query: "?unknown", field: "unknown"},
		mistake{query: "?HIDDEN%20TEXT=x", field: "query"})
	for _, name := range names {
		out = append(out, mistake{query: "?" + name + "s=true", field: name + "s"},
			mistake{query: "?" + strings.ToUpper(name) + "=x", field: "query"})
		if name != "type" { // of which there may be several
			out = append(out, mistake{query: "?" + name + "=0:1&" + name + "=0:2", field: name})
		}
		if name != "cursor" { // of the first page
			out = append(out, mistake{query: "?" + name + "=", field: name}, mistake{query: "?" + name, field: name})
		}
	}
	body, takes := op["requestBody"].(map[string]any)
	if !takes {
		for _, sent := range []any{`{"dry_run":true}`, `{}`, "x", streamed(`{"dry_run":true}`)} {
			out = append(out, mistake{body: sent, field: "body"})
		}
	} else if _, json := body["content"].(map[string]any)["application/json"]; json {
		out = append(out, mistake{body: `{"unknown":true}`, field: "unknown"})
	}
	return out
}

// TestUnknownIsRefused goes through the calls of the OpenAPI document: a parameter or a member that a call does not
// have, a parameter that is empty or comes twice, and a body where none is taken is 422, and nothing is done.
//
//conformance:c1
func TestUnknownIsRefused(t *testing.T) {
	t.Parallel()
	var swept counted
	s, _ := guarded(t, ring{}, func(c *config, _ *history.Config, _ *read.Config) {
		c.Retention = &swept
	})
	require.Equal(t, http.StatusCreated, s.as("all", "POST", "/v1/sessions/s/turns",
		`{"request_id":"r","question_neutral":"q"}`).status)
	head, tried := s.head(), 0
	for path, item := range s.do("GET", "/openapi.json", nil).body["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			method, at := fill(strings.ToUpper(method)+" "+path, "s")
			for _, m := range mistakesOf(op.(map[string]any)) {
				a := s.as("all", method, at+m.query, m.body)
				what := fmt.Sprint(method, " ", at, m.query, " ", m.body)
				require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s: %s", what, a.raw)
				require.Equal(t, "invalid_argument", a.body["code"], what)
				fields := fmt.Sprint(column(a.body["errors"], "field"))
				require.Contains(t, fields, m.field, what)
				require.NotContains(t, string(a.raw), "HIDDEN", what)
				require.Equal(t, head, s.head(), what)
				tried++
			}
		}
	}
	require.Greater(t, tried, 300)
	require.Zero(t, swept.Load())
}

// counted counts what is erased by retention.
type counted struct {
	nothing
	atomic.Int64
}

func (c *counted) Sweep(context.Context) (services.Swept, error) {
	c.Add(1)
	return services.Swept{}, nil
}

// TestARefusalSaysWhatToUse: a caller who meant what another part of the request says is told so.
//
//conformance:c1
func TestARefusalSaysWhatToUse(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{})
	for _, c := range []struct{ method, path, body, says string }{
		{"POST", "/v1/retention", `{"dry_run":true}`, "body: is not taken by this call: its parameters stand in the " +
			"query: dry_run"},
		{"POST", "/v1/retention?dryrun=true", "", "dryrun: is no parameter of this call: there is dry_run"},
		{"POST", "/v1/retention?dry_run=1", "", "dry_run: must be true or false"},
		{"POST", "/v1/retention?dry_run=true&dry_run=false", "", "dry_run: must stand there once"},
		{"POST", "/v1/retention?dry_run=", "", "dry_run: must not be empty: leave it out"},
		{"GET", "/v1/sessions?identity=ann", "", "identity: is no parameter of this call: there are identity_id, " +
			"since, until, limit, cursor, min_position"},
		{"GET", "/v1/sessions?identity_id=", "", "identity_id: must not be empty: leave it out"},
		{"GET", "/v1/projections?name=recent", "", "name: is no parameter of this call, which has none"},
		{"POST", "/v1/projections/recent/rebuild", `{"detach":true}`, "body: is not taken by this call"},
		{"DELETE", "/v1/sessions/s?reason=r", "", "reason: is no parameter of this call: send it in the body"},
		{"DELETE", "/v1/sessions/s", `{"dry_run":true}`, "dry_run: is not a member of this call's body: there are " +
			"reason, redacted_by"},
		{"DELETE", "/v1/sessions/s", `{"reason":"a","reason":"b"}`, "reason: must stand there once"},
		{"GET", "/v1/events?type=,", "", "type: must not be empty: leave it out"},
	} {
		a := s.as("all", c.method, c.path, c.body)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s %s: %s", c.method, c.path, a.raw)
		require.Equal(t, c.says, a.body["detail"], "%s %s", c.method, c.path)
	}
	require.Equal(t, http.StatusOK, s.as("all", "GET", "/v1/sessions/s/turns?cursor=", nil).status)
	require.Equal(t, http.StatusOK, s.as("all", "GET", "/v1/sessions/s/turns", " \r\n").status)
	require.Equal(t, http.StatusServiceUnavailable, s.as("all", "POST", "/v1/retention?dry%5Frun=true", nil).status)
}

// A header that a call reads, and that comes twice, says two things.
//
//conformance:c1
func TestAHeaderThatComesTwiceIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, path := range map[string]string{
		"Idempotency-Key": "/v1/sessions/s/turns", "If-None-Match": "/v1/sessions/s/turns",
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+path,
			strings.NewReader(`{"request_id":"r","question_neutral":"q"}`))
		require.NoError(t, err)
		r.Header[name] = []string{"*", "b"}
		resp, err := noRedirects.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, name)
	}
	require.Zero(t, s.head())
}
