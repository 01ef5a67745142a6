package openai

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// members are the members of a body. Those that a call does not know are left alone: clients are newer than servers.
type members map[string]json.RawMessage

// body reads the body of a request: an object. An empty body is one without members.
func (s *surface) body(r *http.Request) (members, []byte, error) {
	raw, err := wire.ReadBody(r, s.cfg.MaxBody)
	if err != nil {
		return nil, nil, err
	}
	m, err := respond.Members(raw)
	return members(m), raw, err
}

// has reports whether a member is there and is not null.
func (m members) has(name string) bool { return len(m[name]) > 0 && string(m[name]) != "null" }

const metadataMember = "metadata"

// metadata reads metadata; a null value takes its key away.
func (m members) metadata() (map[string]*string, error) { return respond.Metadata(m[metadataMember]) }

// headers by which a client says which call it makes.
const (
	keyHeader   = "Idempotency-Key"
	retryHeader = "X-Stainless-Retry-Count"
)

// callOf returns the identity of a call, by which its repetition is known.
func (s *surface) callOf(ctx context.Context, r *http.Request, body []byte) services.Call {
	return s.callFrom(ctx, r, body, "")
}

// beginningOf is callOf for a call that begins a session. Many users may share a key, and begin with the same words, so
// such a call repeats only what came from the same address.
func (s *surface) beginningOf(ctx context.Context, r *http.Request, body []byte) services.Call {
	host, _, _ := net.SplitHostPort(access.CallOf(ctx).Remote) // an address of another form tells nobody apart
	return s.callFrom(ctx, r, body, host)
}

func (s *surface) callFrom(ctx context.Context, r *http.Request, body []byte, host string) services.Call {
	where := caller(ctx) + "\x00" + r.Method + "\x00" + r.URL.EscapedPath()
	c := services.Call{Body: s.digest("body", where, string(body))}
	if host != "" {
		c.Body = s.digest("beginning", where, host, string(body))
	}
	if key := r.Header.Get(keyHeader); key != "" {
		c.Key = s.digest("key", where, key)
	}
	n, err := strconv.Atoi(r.Header.Get(retryHeader))
	c.Repeats = err == nil && n >= 1
	return c
}

// digest returns 48 hex digits that depend on the log's key.
func (s *surface) digest(parts ...string) string {
	mac := hmac.New(sha256.New, s.cfg.Key)
	for _, p := range parts {
		_, _ = mac.Write([]byte(p + "\x00")) // never fails
	}
	return hex.EncodeToString(mac.Sum(nil)[:24])
}

// list is a page of things with ids.
type list struct {
	Object  string  `json:"object"`
	Data    []any   `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

// listOf returns a page that is all there is. An empty one has neither first nor last.
func listOf[T any](page []T, id func(T) string) list {
	out := list{Object: "list", Data: []any{}}
	for _, one := range page {
		out.Data = append(out.Data, one)
	}
	if len(page) > 0 {
		out.FirstID, out.LastID = optional(id(page[0])), optional(id(page[len(page)-1]))
	}
	return out
}

// thenMore returns the page, which more may follow.
func (l list) thenMore(more bool) list {
	l.HasMore = more
	return l
}

const defaultLimit, maxLimit = 20, 100

func pagingOf(r *http.Request) (p services.Paging, err error) {
	q := r.URL.Query()
	p = services.Paging{Limit: defaultLimit, After: q.Get("after")}
	if q.Has("limit") {
		switch p.Limit, err = strconv.Atoi(q.Get("limit")); {
		case err != nil:
			return p, bad("limit", codeType, "limit must be a whole number.")
		case p.Limit < 1:
			return p, bad("limit", codeBelow, "limit must be at least 1.")
		case p.Limit > maxLimit:
			return p, bad("limit", codeAbove, "limit must be at most 100.")
		}
	}
	switch q.Get("order") {
	case "asc":
		p.Asc = true
	case "", "desc":
	default:
		return p, bad("order", codeValue, "order must be asc or desc.")
	}
	return p, nil
}

// includesOf reads the query member include, with or without brackets.
func includesOf(r *http.Request) (message.Includes, error) {
	q, out := r.URL.Query(), message.Includes{}
	for _, name := range []string{"include[]", "include"} {
		for _, value := range q[name] {
			out[value] = true
		}
	}
	for value := range out {
		if !slices.Contains(message.KnownIncludes, value) {
			return nil, bad("include", codeValue, "include has a value that there is not.")
		}
	}
	return out, nil
}
