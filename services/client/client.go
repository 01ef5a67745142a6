package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Config of a Client.
type Config struct {
	// URL of the server; http://127.0.0.1:8480 by default.
	URL string
	// Key is sent as a bearer token (TURNLEDGER_KEY), if there is one.
	Key string
	// Transport of requests; by default one with enough connections for many callers.
	Transport http.RoundTripper
	// Attempt bounds one attempt, 15 s by default; Patience all of a call, 60 s by
	// default.
	Attempt, Patience time.Duration
	// Tries of a call; 8 by default.
	Tries uint
	// MaxAnswer bounds an answer in bytes; 64 MiB by default.
	MaxAnswer int64
	// ReadYourWrites makes every read at least as new as this client's last write,
	// whichever server answers it.
	ReadYourWrites bool
}

func (c Config) withDefaults() Config {
	if c.URL == "" {
		c.URL = "http://127.0.0.1:8480"
	}
	if c.Transport == nil {
		c.Transport = newTransport()
	}
	if c.Attempt == 0 {
		c.Attempt = 15 * time.Second
	}
	if c.Patience == 0 {
		c.Patience = time.Minute
	}
	if c.Tries == 0 {
		c.Tries = 8
	}
	if c.MaxAnswer == 0 {
		c.MaxAnswer = 64 << 20
	}
	return c
}

func newTransport() http.RoundTripper {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		MaxIdleConns: 512, MaxIdleConnsPerHost: 512, IdleConnTimeout: 90 * time.Second,
		ExpectContinueTimeout: time.Minute, // for those who ask whether a body is wanted
	}
}

// Client talks to a Turnledger server. Safe for concurrent use; it keeps
// connections open until Close.
type Client struct {
	cfg  Config
	base string
	http *http.Client
	seen positions
}

// New makes a client; it does no I/O.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, ErrURL
	}
	return &Client{cfg: cfg, base: strings.TrimSuffix(cfg.URL, "/") + "/v1", http: &http.Client{
		Transport: cfg.Transport,
		// The key must not follow a redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// OnRequestStarted records the question of a request.
func (c *Client) OnRequestStarted(ctx context.Context, s Start) (turnID string, err error) {
	t, err := c.StartTurn(ctx, s)
	return t.TurnID, err
}

// OnRequestFinalized records the answer of a request.
func (c *Client) OnRequestFinalized(ctx context.Context, f Finalize) error {
	_, err := c.FinalizeTurn(ctx, f)
	return err
}

// StartTurn records the start of a turn; with an identity it links the session, too.
func (c *Client) StartTurn(ctx context.Context, s Start) (Turn, error) {
	return c.writeTurn(ctx, "start turn", s.SessionID, "/turns", s, s.RequestID != "")
}

// FinalizeTurn records a turn's answer.
func (c *Client) FinalizeTurn(ctx context.Context, f Finalize) (Turn, error) {
	return c.writeTurn(ctx, "finalize turn", f.SessionID, "/turns/"+escape(f.TurnID)+"/finalize", f, true)
}

// Redact makes a turn, with all its versions, a tombstone.
func (c *Client) Redact(ctx context.Context, r Redact) (Turn, error) {
	return c.writeTurn(ctx, "redact turn", r.SessionID, "/turns/"+escape(r.TurnID)+"/redact", r, true)
}

// Correct replaces a turn and gives the one that stands in its place.
func (c *Client) Correct(ctx context.Context, r Correct) (Turn, error) {
	return c.writeTurn(ctx, "correct turn", r.SessionID, "/turns/"+escape(r.TurnID)+"/correct", r, r.RequestID != "")
}

func (c *Client) writeTurn(ctx context.Context, what, sessionID, path string, body any, again bool) (t Turn, err error) {
	err = c.do(ctx, request{what, http.MethodPost, "/sessions/" + escape(sessionID) + path, body, again}, &t)
	c.seen.saw(sessionID, t.Position)
	return t, err
}

// LinkSession links a session to an identity.
func (c *Client) LinkSession(ctx context.Context, identityID, sessionID string) (s Session, err error) {
	body := map[string]string{"identity_id": identityID}
	err = c.do(ctx, request{"link session", http.MethodPut, "/sessions/" + escape(sessionID) + "/identity", body, true}, &s)
	c.seen.saw(sessionID, s.Position)
	return s, err
}

// Reset makes prompts and history start anew. It is sent once only: said again later
// it would hide what began in between.
func (c *Client) Reset(ctx context.Context, sessionID, reason string) (s Session, err error) {
	body := map[string]string{"reason": reason}
	err = c.do(ctx, request{"reset session", http.MethodPost, "/sessions/" + escape(sessionID) + "/reset", body, false}, &s)
	c.seen.saw(sessionID, s.Position)
	return s, err
}

// Session looks at a session; one that the log does not know is not Found.
func (c *Client) Session(ctx context.Context, sessionID string) (s Session, err error) {
	err = c.do(ctx, c.read("look at session", sessionID, "", nil), &s)
	return s, err
}

// ListRecentFinalizedTurns gives the newest turns that have their answer, newest
// last.
func (c *Client) ListRecentFinalizedTurns(ctx context.Context, sessionID string, limit int) ([]Turn, error) {
	page, err := c.Turns(ctx, sessionID, TurnQuery{Limit: limit})
	return page.Turns, err
}

// Turns lists a session's turns, newest last; the next page has older ones.
func (c *Client) Turns(ctx context.Context, sessionID string, q TurnQuery) (page TurnPage, err error) {
	v := url.Values{}
	add(v, "status", q.Status)
	add(v, "cursor", q.Cursor)
	addLimit(v, q.Limit)
	err = c.do(ctx, c.read("list turns", sessionID, "/turns", v), &page)
	return page, err
}

// History gives what a prompt may be told of a session, oldest first; limit 0 is the
// server's default.
func (c *Client) History(ctx context.Context, sessionID string, limit int) ([]Pair, error) {
	var out struct {
		History []Pair `json:"history"`
	}
	v := url.Values{}
	addLimit(v, limit)
	err := c.do(ctx, c.read("get history", sessionID, "/history", v), &out)
	return out.History, err
}

// Context gives the messages to send to a model.
func (c *Client) Context(ctx context.Context, sessionID string, r ContextRequest) (out Context, err error) {
	req := c.read("build context", sessionID, "/context", nil)
	req.method, req.body = http.MethodPost, r
	err = c.do(ctx, req, &out)
	return out, err
}

// IdentityTurns lists an identity's turns across its sessions.
func (c *Client) IdentityTurns(ctx context.Context, identityID string, q IdentityQuery) (page TurnPage, err error) {
	v := url.Values{}
	add(v, "cursor", q.Cursor)
	addLimit(v, q.Limit)
	addTime(v, "since", q.Since)
	addTime(v, "until", q.Until)
	if c.cfg.ReadYourWrites {
		add(v, "min_position", c.seen.all())
	}
	err = c.do(ctx, request{"list identity turns", http.MethodGet, withQuery("/identities/"+escape(identityID)+"/turns", v), nil, true}, &page)
	return page, err
}

// Projections tells how far the views are.
func (c *Client) Projections(ctx context.Context) ([]Projection, error) {
	var out struct {
		Projections []Projection `json:"projections"`
	}
	err := c.do(ctx, request{"list projections", http.MethodGet, "/projections", nil, true}, &out)
	return out.Projections, err
}

// DeadLetters lists the events that views could not apply, of one view or, for "", of
// all.
func (c *Client) DeadLetters(ctx context.Context, projection string) ([]DeadLetter, error) {
	var out struct {
		DeadLetters []DeadLetter `json:"deadletters"`
	}
	v := url.Values{}
	add(v, "projection", projection)
	err := c.do(ctx, request{"list dead letters", http.MethodGet, withQuery("/deadletters", v), nil, true}, &out)
	return out.DeadLetters, err
}

// DeadLetter looks at one.
func (c *Client) DeadLetter(ctx context.Context, projection, position string) (l DeadLetter, err error) {
	err = c.do(ctx, request{"look at a dead letter", http.MethodGet, letterPath(projection, position), nil, true}, &l)
	return l, err
}

// RetryDeadLetter applies the event again. State is "applied", or what it was before
// where the view refused it again, with the new reason.
func (c *Client) RetryDeadLetter(ctx context.Context, projection, position string) (l DeadLetter, err error) {
	// Not sent twice: what was applied by the first is no letter for the second.
	err = c.do(ctx, request{"retry a dead letter", http.MethodPost, letterPath(projection, position) + "/retry", nil, false}, &l)
	return l, err
}

// DropDeadLetter leaves the event out for good; the letter stays, with who and why.
func (c *Client) DropDeadLetter(ctx context.Context, projection, position, reason, by string) (l DeadLetter, err error) {
	body := map[string]string{"reason": reason, "dropped_by": by}
	err = c.do(ctx, request{"drop a dead letter", http.MethodPost, letterPath(projection, position) + "/drop", body, true}, &l)
	return l, err
}

func letterPath(projection, position string) string {
	return "/deadletters/" + escape(projection) + "/" + escape(position)
}

// read makes a read of a session.
func (c *Client) read(what, sessionID, path string, v url.Values) request {
	if v == nil {
		v = url.Values{}
	}
	if c.cfg.ReadYourWrites {
		add(v, "min_position", c.seen.of(sessionID))
	}
	return request{what, http.MethodGet, withQuery("/sessions/"+escape(sessionID)+path, v), nil, true}
}

func withQuery(path string, v url.Values) string {
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

func add(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

func addLimit(v url.Values, limit int) {
	if limit != 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
}

func addTime(v url.Values, name string, t time.Time) {
	if !t.IsZero() {
		v.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}

// escape makes one segment of a path of an id, also of one that the server refuses.
func escape(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}

// attempted says in an error what was attempted.
func attempted(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
