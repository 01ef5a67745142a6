package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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
	// Attempt bounds one attempt, 15 s by default. Patience bounds a call with all its attempts, 60 s by default.
	Attempt, Patience time.Duration
	// Tries bounds the attempts of a call; 8 by default.
	Tries uint
	// MaxAnswer bounds a response in bytes; 64 MiB by default.
	MaxAnswer int64
	// ReadYourWrites makes every read include this client's last write, whichever server answers.
	ReadYourWrites bool
}

func (c Config) withDefaults() Config {
	c.URL = cmp.Or(c.URL, "http://127.0.0.1:8480")
	c.Attempt, c.Patience = cmp.Or(c.Attempt, 15*time.Second), cmp.Or(c.Patience, time.Minute)
	c.Tries, c.MaxAnswer = cmp.Or(c.Tries, 8), cmp.Or(c.MaxAnswer, 64<<20)
	if c.Transport == nil {
		c.Transport = newTransport()
	}
	return c
}

func newTransport() http.RoundTripper {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		MaxIdleConns: 512, MaxIdleConnsPerHost: 512, IdleConnTimeout: 90 * time.Second,
		ExpectContinueTimeout: time.Minute, // Restore asks the server first whether it accepts the body
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
		// A redirect must not receive the key.
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

// StartTurn records the start of a turn. With an identity it also links the session.
func (c *Client) StartTurn(ctx context.Context, s Start) (Turn, error) {
	return c.writeTurn(ctx, "start turn", s.SessionID, "/turns", s, repetition(s.RequestID != ""))
}

// FinalizeTurn records a turn's answer.
func (c *Client) FinalizeTurn(ctx context.Context, f Finalize) (Turn, error) {
	return c.writeTurn(ctx, "finalize turn", f.SessionID, "/turns/"+escape(f.TurnID)+"/finalize", f, repeatable)
}

// Redact makes a turn, with all its versions, a tombstone.
func (c *Client) Redact(ctx context.Context, r Redact) (Turn, error) {
	return c.writeTurn(ctx, "redact turn", r.SessionID, "/turns/"+escape(r.TurnID)+"/redact", r, repeatable)
}

// Correct replaces a turn and returns the turn that stands in its place.
func (c *Client) Correct(ctx context.Context, r Correct) (Turn, error) {
	return c.writeTurn(ctx, "correct turn", r.SessionID, "/turns/"+escape(r.TurnID)+"/correct", r,
		repetition(r.RequestID != ""))
}

func (c *Client) writeTurn(
	ctx context.Context, what, sessionID, path string, body any, retry repetition,
) (Turn, error) {
	r := request{what, http.MethodPost, "/sessions/" + escape(sessionID) + path, body, retry}
	t, err := call[Turn](ctx, c, r)
	c.saw(sessionID, t.Position)
	return t, err
}

// LinkSession links a session to an identity.
func (c *Client) LinkSession(ctx context.Context, identityID, sessionID string) (Session, error) {
	body := map[string]string{"identity_id": identityID}
	return c.writeSession(ctx, sessionID, request{"link session", http.MethodPut, "/identity", body, repeatable})
}

// Reset makes prompts and history start anew. The request is sent only once: a second one that arrives later would also
// hide the turns that began in between.
func (c *Client) Reset(ctx context.Context, sessionID, reason string) (Session, error) {
	body := map[string]string{"reason": reason}
	return c.writeSession(ctx, sessionID, request{"reset session", http.MethodPost, "/reset", body, sentOnce})
}

// writeSession sends a request with a path below that of the session.
func (c *Client) writeSession(ctx context.Context, sessionID string, r request) (Session, error) {
	r.path = "/sessions/" + escape(sessionID) + r.path
	s, err := call[Session](ctx, c, r)
	c.saw(sessionID, s.Position)
	return s, err
}

func (c *Client) saw(sessionID, position string) {
	if c.cfg.ReadYourWrites {
		c.seen.saw(sessionID, position)
	}
}

// Session returns a session without its turns. Found is false if the log does not know the session.
func (c *Client) Session(ctx context.Context, sessionID string) (Session, error) {
	return call[Session](ctx, c, c.read("look at session", sessionID, ""))
}

// ListRecentFinalizedTurns returns the newest turns with an answer, newest last.
func (c *Client) ListRecentFinalizedTurns(ctx context.Context, sessionID string, limit int) ([]Turn, error) {
	page, err := c.Turns(ctx, sessionID, TurnQuery{Limit: limit})
	return page.Turns, err
}

// Turns lists a session's turns, newest last. The next page has older turns.
func (c *Client) Turns(ctx context.Context, sessionID string, q TurnQuery) (TurnPage, error) {
	r := c.read("list turns", sessionID, "/turns", "status", q.Status, "cursor", q.Cursor, "limit", number(q.Limit))
	return call[TurnPage](ctx, c, r)
}

// History returns the questions and answers of a session that a prompt may show, oldest first. Limit 0 means the
// server's default.
func (c *Client) History(ctx context.Context, sessionID string, limit int) ([]Pair, error) {
	return callField[[]Pair](ctx, c, "history", c.read("get history", sessionID, "/history", "limit", number(limit)))
}

// Context returns the messages to send to a model.
func (c *Client) Context(ctx context.Context, sessionID string, r ContextRequest) (Context, error) {
	req := c.read("build context", sessionID, "/context")
	req.method, req.body = http.MethodPost, r
	return call[Context](ctx, c, req)
}

// IdentityTurns lists an identity's turns across its sessions.
func (c *Client) IdentityTurns(ctx context.Context, identityID string, q IdentityQuery) (TurnPage, error) {
	return call[TurnPage](ctx, c, get("list identity turns", "/identities/"+escape(identityID)+"/turns",
		"cursor", q.Cursor, "limit", number(q.Limit), "since", moment(q.Since), "until", moment(q.Until),
		"min_position", c.seen.all()))
}

// Projections lists the views, and how far each has come.
func (c *Client) Projections(ctx context.Context) ([]Projection, error) {
	return callField[[]Projection](ctx, c, "projections", get("list projections", "/projections"))
}

// DeadLetters lists the events that a view could not apply; for "", those of all views.
func (c *Client) DeadLetters(ctx context.Context, projection string) ([]DeadLetter, error) {
	r := get("list dead letters", "/deadletters", "projection", projection)
	return callField[[]DeadLetter](ctx, c, "deadletters", r)
}

// DeadLetter returns one dead letter.
func (c *Client) DeadLetter(ctx context.Context, projection, position string) (DeadLetter, error) {
	return call[DeadLetter](ctx, c, get("look at a dead letter", letterPath(projection, position)))
}

// RetryDeadLetter applies the event again. State is "applied". If the view refused the event again, State is unchanged,
// and the letter has the new reason.
func (c *Client) RetryDeadLetter(ctx context.Context, projection, position string) (DeadLetter, error) {
	// The request is not repeated: if the first one applied the event, the letter is gone when the second arrives.
	path := letterPath(projection, position) + "/retry"
	return call[DeadLetter](ctx, c, request{"retry a dead letter", http.MethodPost, path, nil, sentOnce})
}

// DropDeadLetter leaves the event out for good. The letter stays, with the reason and the name of the person who
// dropped it.
func (c *Client) DropDeadLetter(ctx context.Context, projection, position, reason, by string) (DeadLetter, error) {
	path, body := letterPath(projection, position)+"/drop", map[string]string{"reason": reason, "dropped_by": by}
	return call[DeadLetter](ctx, c, request{"drop a dead letter", http.MethodPost, path, body, repeatable})
}

func letterPath(projection, position string) string {
	return "/deadletters/" + escape(projection) + "/" + escape(position)
}

// read makes a read request with a path below that of the session.
func (c *Client) read(what, sessionID, path string, query ...string) request {
	return get(what, "/sessions/"+escape(sessionID)+path, append(query, "min_position", c.seen.newestOf(sessionID))...)
}

// get makes a read request. query holds names and values in turn; empty values are left out.
func get(what, path string, query ...string) request {
	return request{what, http.MethodGet, withQuery(path, query...), nil, repeatable}
}

func withQuery(path string, query ...string) string {
	v := url.Values{}
	for pair := range slices.Chunk(query, 2) {
		if pair[1] != "" {
			v.Add(pair[0], pair[1])
		}
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// number formats a number for a query; "" for 0.
func number(n int) string { return strings.TrimPrefix(strconv.Itoa(n), "0") }

// moment formats a time for a query; "" for the zero time.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// escape makes an id one segment of a path, even an id that the server refuses.
func escape(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}

// attempted adds to an error what was attempted.
func attempted(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
