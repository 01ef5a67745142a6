package client

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
)

// Call makes a call of the API by its members, which are JSON values, and returns the answer as it came. Members that
// the path names, such as /sessions/{session_id}, stand there, min_position and all of a GET in the query, and the
// others in the body. The call is repeated as others are, so a call that writes needs a request_id.
func (c *Client) Call(
	ctx context.Context, method, path string, members map[string]json.RawMessage,
) (answer json.RawMessage, err error) {
	rest := maps.Clone(members)
	segments, query := strings.Split(path, "/"), []string{}
	for i, s := range segments {
		if name, is := strings.CutPrefix(s, "{"); is {
			name = strings.TrimSuffix(name, "}")
			segments[i] = escape(plain(rest[name]))
			delete(rest, name)
		}
	}
	for name, value := range rest {
		if method == http.MethodGet || name == "min_position" {
			query = append(query, name, plain(value))
			delete(rest, name)
		}
	}
	r := request{"call " + path, method, withQuery(strings.Join(segments, "/"), query...), nil, repeatable}
	if method != http.MethodGet {
		r.body = rest
	}
	return call[json.RawMessage](ctx, c, r)
}

// plain returns a value as it stands in a path or a query: a string without its quotation marks.
func plain(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}
