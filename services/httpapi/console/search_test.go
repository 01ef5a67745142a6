package console_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/console"
)

// searched is a search with fixed answers, which remembers what it was asked.
type searched struct {
	asked services.SearchAsk
	page  services.SearchPage
	err   error
}

func (s *searched) Search(_ context.Context, ask services.SearchAsk) (services.SearchPage, error) {
	s.asked = ask
	return s.page, s.err
}

func (s *searched) set(c *console.Config) { c.Search = s }

// The words of a search are posted: they stand in no address, title or log line.
func TestSearching(t *testing.T) {
	t.Parallel()
	turn := uuid.New()
	found := &searched{page: services.SearchPage{
		NextCursor: "more", Mode: services.SearchHybrid, Lag: 7,
		Hits: []projections.Hit{{
			SessionID: "a/b", IdentityID: "ada", TurnID: turn, Half: projections.QuestionHalf,
			CreatedAt: time.Unix(1, 0), Position: events.Position{Seq: 7}, Snippet: "<b>a secret</b> place",
		}},
	}}
	s := start(t, nil, found.set)
	require.Contains(t, s.page("/console/search?session_id=a%2Fb", "").body, `value="a/b"`)
	require.NotContains(t, s.page("/console/search?query=secret", "").body, "secret", "none is read from an address")
	a := s.do("POST", "/console/search", url.Values{"query": {"secret words"}, "in": {"question"},
		"mode": {"hybrid"}, "session_id": {"a/b"}, "identity_id": {"ada"},
		"since": {"2026-01-02T03:04"}, "until": {"2026-01-03"}, "cursor": {"c"}})
	require.Equal(t, http.StatusOK, a.status)
	want := projections.SearchFilter{Query: "secret words", In: projections.QuestionHalf, SessionID: "a/b",
		IdentityID: "ada"}
	want.Since = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	want.Until = time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)
	require.Equal(t, services.SearchAsk{SearchFilter: want, Mode: services.SearchHybrid, Limit: 20, Cursor: "c"},
		found.asked)
	for _, shown := range []string{`href="/console/sessions/a%2Fb?at=0:7#t-` + turn.String(), "&lt;b&gt;a secret",
		`name="cursor" value="more"`, "by words and meaning", "not applied 7 events"} {
		require.Contains(t, a.body, shown)
	}
	require.NotContains(t, s.logs.String(), "secret")
	for _, wrong := range []url.Values{{}, {"query": {"q"}, "in": {"x"}}, {"query": {"q"}, "mode": {"x"}},
		{"query": {"q"}, "since": {"soon"}},
		{"query": {"q"}, "session_id": {"."}}} {
		require.Equal(t, http.StatusUnprocessableEntity, s.do("POST", "/console/search", wrong).status, wrong)
	}
	for _, text := range hostile {
		found.page.Hits[0].Snippet = text
		a := s.do("POST", "/console/search", url.Values{"query": {text[:min(len(text), 500)]}})
		requireText(t, a.body)
	}
	for err, say := range map[error]string{
		services.ErrBehind: "have not applied yet", services.ErrIndex: "does not answer",
		errors.Join(services.ErrIndex, services.ErrNoIndex): "No index of meanings is configured",
	} {
		found.err = err
		a := s.do("POST", "/console/search", url.Values{"query": {"q"}})
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.Contains(t, a.body, say)
	}
	kept := s.do("POST", "/console/search", url.Values{"query": {"some <words"}, "mode": {"meaning"}}).body
	require.Contains(t, kept, `name="query" value="some &lt;words"`, "the form is kept")
	require.Contains(t, kept, `value="meaning" selected`)
	found.err, found.page = nil, services.SearchPage{}
	none := s.do("POST", "/console/search", url.Values{"query": {"some <words"}}).body
	require.Contains(t, none, "Nothing found for “<bdi>some &lt;words</bdi>”.")
	without := start(t, nil).do("POST", "/console/search", url.Values{"query": {"q"}})
	require.Equal(t, http.StatusServiceUnavailable, without.status)
}

// A bound key searches its own sessions; a key without events:read names an identity.
func TestWhoseTurnsAreSearched(t *testing.T) {
	t.Parallel()
	found := &searched{}
	s := start(t, newRing(map[string]access.Caller{
		"ada": {Name: "ada", Scopes: reads, IdentityID: "ada"}, "reader": {Name: "reader", Scopes: reads},
	}), found.set)
	search := func(cookie, identity string) answer {
		return s.do("POST", "/console/search", url.Values{"query": {"q"}, "identity_id": {identity}}, "Cookie", cookie)
	}
	ada, reader := s.cookieOf("ada"), s.cookieOf("reader")
	require.Equal(t, http.StatusOK, search(ada, "").status)
	require.Equal(t, "ada", found.asked.IdentityID)
	require.Equal(t, http.StatusForbidden, search(ada, "bob").status)
	found.asked = services.SearchAsk{}
	require.Contains(t, search(reader, "").body, "Name an identity")
	require.Zero(t, found.asked, "nothing was searched")
	search(reader, "bob")
	require.Equal(t, "bob", found.asked.IdentityID)
}

// chatted is a chat that answers with two pieces, or fails, and remembers the message.
type chatted struct {
	sent    services.ChatMessage
	err     error
	endless bool
}

func (c *chatted) Send(
	ctx context.Context, m services.ChatMessage, to services.Listener,
) (services.ChatReply, error) {
	c.sent = m
	if _, bounded := ctx.Deadline(); !bounded {
		c.endless = true
	}
	to.Begun(services.Step{SessionID: "a thread", TurnID: uuid.New()})
	to.Piece(said("Hel"))
	to.Piece(said("lo\x1b"))
	return services.ChatReply{ThreadID: "a thread"}, c.err
}

func TestAMessageOfThePlayground(t *testing.T) {
	t.Parallel()
	chat := &chatted{}
	s := start(t, nil, func(c *console.Config) { c.Chat = chat })
	turn := uuid.New()
	a := s.do("POST", "/console/playground/stream", url.Values{"thread_id": {"t/1"}, "content": {"secret\r\nwords"},
		"identity_id": {"ada"}, "request_id": {"r"}, "edits_turn_id": {turn.String()}})
	require.Equal(t, services.ChatMessage{ThreadID: "t/1", UserID: "ada", RequestID: "r", Content: "secret\nwords",
		Edits: turn}, chat.sent)
	for _, want := range []string{"event: begun", `data: {"text":"Hel"}`, `data: {"text":"lo␛"}`,
		`event: done`, `"page":"/console/playground?thread_id=a+thread#message"`} {
		require.Contains(t, a.body, want)
	}
	require.NotContains(t, s.logs.String(), "secret")
	again := url.Values{"regenerates_turn_id": {turn.String()}, "content": {"x"}}
	sent := s.do("POST", "/console/playground/send", again)
	require.Equal(t, "/console/playground?thread_id=a+thread#message", sent.header.Get("Location"))
	require.Equal(t, services.ChatMessage{Regenerates: turn}, chat.sent)
	require.False(t, chat.endless, "a model that sends a byte now and then holds no message for ever")
	for _, wrong := range []url.Values{{}, {"content": {"c"}, "thread_id": {"."}}, {"content": {"c"},
		"edits_turn_id": {"x"}}} {
		for _, path := range []string{"send", "stream", "prompt"} {
			refused := s.do("POST", "/console/playground/"+path, wrong)
			require.Equal(t, http.StatusUnprocessableEntity, refused.status, wrong)
		}
	}
	chat.err = services.ErrModelFailed
	failed := s.do("POST", "/console/playground/stream", url.Values{"content": {"c"}})
	require.Contains(t, failed.body, "event: failed")
	require.Contains(t, failed.body, "stays pending")
	waited := s.do("POST", "/console/playground/send", url.Values{"content": {"c"}})
	require.Equal(t, http.StatusBadGateway, waited.status)
	require.Equal(t, http.StatusNotFound, start(t, nil).page("/console/playground", "").status, "without a chat")
	require.NotContains(t, start(t, nil).page("/console/log", "").body, "Playground")
}

// The prompt of a message is shown before anything is recorded, beside the thread as it stands.
func TestThePromptOfThePlayground(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(c *console.Config) { c.Chat = &chatted{} })
	asked := s.turn("s", "r", "an earlier question", "an earlier answer")
	before := s.page("/console/log", "").body
	a := s.do("POST", "/console/playground/prompt", url.Values{"thread_id": {"s"}, "content": {"<i>next"}})
	require.Equal(t, http.StatusOK, a.status)
	prompt, _, _ := strings.Cut(a.body[strings.Index(a.body, `id="prompt"`):], "</section>")
	for _, want := range []string{"an earlier question", "an earlier answer", "&lt;i&gt;next", "1 turn of history",
		"tokens"} {
		require.Contains(t, prompt, want)
	}
	require.Equal(t, before, s.page("/console/log", "").body)
	edit := s.page("/console/playground?thread_id=s&edit="+asked.ID.String(), "").body
	require.Contains(t, edit, `name="edits_turn_id" value="`+asked.ID.String())
	require.Contains(t, edit, "\nan earlier question</textarea>")
	require.Contains(t, edit, `name="regenerates_turn_id" value="`+asked.ID.String())
	empty := s.do("POST", "/console/playground/prompt", url.Values{"content": {"first"}})
	require.Contains(t, empty.body, "0 turns of history")
}

func said(text string) services.AnswerPiece {
	return services.AnswerPiece{AnswerPart: services.AnswerPart{Kind: services.PartText, Text: text}}
}
