package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Describe changes a session's title and metadata. RequestID is the idempotency key of the request. A nil Title leaves
// the title, an empty one takes it away; a nil value of Metadata takes its key away. The Kind "conversation" makes the
// session a conversation for ever: no silence is a boundary in it (docs/contract.md#reading).
type Describe struct {
	SessionID string             `json:"-"`
	RequestID string             `json:"request_id,omitempty"`
	Kind      string             `json:"kind,omitempty"`
	Title     *string            `json:"title,omitempty"`
	Metadata  map[string]*string `json:"metadata,omitempty"`
}

// SessionQuery asks for sessions; zero values are no bounds, or the server's defaults. Since and Until bound the last
// activity; Title is a part of the title, Metadata members of the metadata.
type SessionQuery struct {
	IdentityID string            `json:"identity_id,omitempty"`
	Since      time.Time         `json:"since,omitzero"`
	Until      time.Time         `json:"until,omitzero"`
	Title      string            `json:"title,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Limit      int               `json:"limit,omitempty"`
	Cursor     string            `json:"cursor,omitempty"`
}

// SessionPage is a page of sessions, the one that was active last first; NextCursor is empty at the end.
type SessionPage struct {
	Sessions   []ListedSession `json:"sessions"`
	NextCursor string          `json:"next_cursor"`
}

// ListedSession is a session of a list, with the beginning of its newest turn. LastTurn is nil if there is none, and
// for an anonymous session that has left the recent view.
type ListedSession struct {
	Session
	LastTurn *struct {
		TurnID          string `json:"turn_id"`
		Status          string `json:"status"`
		QuestionNeutral string `json:"question_neutral"`
		AnswerNeutral   string `json:"answer_neutral"`
	} `json:"last_turn"`
}

// Describe changes a session's title and metadata. Without a request id it is sent only once.
func (c *Client) Describe(ctx context.Context, d Describe) (Session, error) {
	retry := sentOnce
	if d.RequestID != "" {
		retry = repeatable
	}
	return c.writeSession(ctx, d.SessionID, request{"describe session", http.MethodPatch, "", d, retry})
}

// Fork makes a branch of a session, which begins with the session's turns.
func (c *Client) Fork(ctx context.Context, f Fork) (Session, error) {
	s, err := c.writeSession(ctx, f.SessionID, request{"fork session", http.MethodPost, "/fork", f, repeatable})
	if err == nil {
		c.saw(s.SessionID, s.Position)
	}
	return s, err
}

// Sessions lists sessions: of one identity, or of all, which a key needs events:read for.
func (c *Client) Sessions(ctx context.Context, q SessionQuery) (SessionPage, error) {
	r := get("list sessions", "/sessions/query", "min_position", c.seen.all())
	r.method, r.body = http.MethodPost, q
	return call[SessionPage](ctx, c, r)
}

// With returns the description with members of the metadata to set, and keys to take away.
func (d Describe) With(set map[string]string, without []string) Describe {
	if len(set)+len(without) > 0 {
		d.Metadata = make(map[string]*string, len(set)+len(without))
	}
	for k, v := range set {
		d.Metadata[k] = &v
	}
	for _, k := range without {
		d.Metadata[k] = nil
	}
	return d
}

// SessionHeading is the heading of a table of sessions, of which Cells are the rows.
const SessionHeading = "SESSION\tIDENTITY\tLAST ACTIVE\tTURNS\tTITLE\tLAST QUESTION"

// Cells are the cells of a session in a table.
func (s ListedSession) Cells() []any {
	question := ""
	if s.LastTurn != nil {
		question = oneLine(s.LastTurn.QuestionNeutral, 60)
	}
	return []any{s.SessionID, dash(s.IdentityID), shownTime(s.LastActiveAt), s.Turns, dash(oneLine(s.Title, 60)),
		question}
}

// String shows a session on several lines.
func (s Session) String() string {
	if !s.Found {
		return "session " + s.SessionID + ": not found"
	}
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "%-12s %s\n", name, value) }
	line("session", s.SessionID)
	line("identity", dash(s.IdentityID))
	line("title", dash(oneLine(s.Title, len(s.Title))))
	for _, k := range slices.Sorted(maps.Keys(s.Metadata)) {
		line("metadata", oneLine(k+"="+s.Metadata[k], len(k)+len(s.Metadata[k])+1))
	}
	if f := s.ForkedFrom; f != nil {
		line("forked from", f.SessionID+" "+dash(f.TurnID))
	}
	line("turns", fmt.Sprintf("%d, %d without an answer", s.Turns, s.Pending))
	line("created", shownTime(s.CreatedAt))
	line("last active", shownTime(s.LastActiveAt))
	line("position", s.Position)
	return strings.TrimSuffix(b.String(), "\n")
}

// oneLine returns at most n characters of a text, on one line and without what a terminal would obey.
func oneLine(s string, n int) string {
	shown := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
	if len(shown) > n {
		return string(shown[:n]) + "…"
	}
	return string(shown)
}

func dash(s string) string { return cmp.Or(s, "-") }

func shownTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
