package v1_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// ifs remembers what it was asked, and tells of one turn before its error.
type ifs struct {
	asked services.WhatIfAsk
	err   error
}

func (i *ifs) WhatIf(_ context.Context, ask services.WhatIfAsk, row func(services.WhatIf) error) error {
	i.asked = ask
	told := services.WhatIf{SessionID: "s", Told: services.ToldSame, Position: events.Position{Seq: 3},
		TokensTold: 9, TokensIf: 5, TurnsTold: 2, TurnsIf: 1, LeftOut: []uuid.UUID{{1}}, BroughtIn: []uuid.UUID{}}
	return errors.Join(row(told), i.err)
}

func TestWhatIf(t *testing.T) {
	t.Parallel()
	i := &ifs{}
	s := start(t, func(c *config) { c.WhatIfs = i })
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for query, want := range map[string]services.WhatIfAsk{
		"sessions=s,t%252Cu&max_tokens=7": {Sessions: []string{"s", "t,u"}, MaxTokens: 7},
		"identity_id=ada&max_messages=4&summary=true&memory=true": {IdentityID: "ada", MaxMessages: 4, Summary: true,
			Memory: true},
		"since=2026-01-02T03:04:05Z": {Since: since},
	} {
		a := s.do("GET", "/v1/whatif?"+query, nil)
		require.Equal(t, http.StatusOK, a.status, "%s", a.raw)
		require.Equal(t, want, i.asked, query)
		require.Equal(t, `{"session_id":"s","turn_id":"00000000-0000-0000-0000-000000000000","position":"0:3","told":"same",`+
			`"tokens_told":9,"tokens_if":5,"turns_told":2,"turns_if":1,"left_out":["01000000-0000-0000-0000-000000000000"],`+
			`"brought_in":[]}`+"\n"+`{"total":{"turns":1,"same":1,"assumed":0,"part":0,"tokens_told":9,"tokens_if":5,`+
			`"turns_told":2,"turns_if":1,"left_out":1,"brought_in":0}}`+"\n", string(a.raw))
		require.Equal(t, "application/x-ndjson", a.header.Get("Content-Type"))
	}
	require.Equal(t, http.StatusOK, s.do("POST", "/v1/whatif", map[string]any{"sessions": []string{"s,t"},
		"since": since, "max_messages": 2, "system": "Be brief."}).status)
	require.Equal(t, services.WhatIfAsk{Sessions: []string{"s,t"}, Since: since, MaxMessages: 2, System: "Be brief."},
		i.asked)
	i.err = projections.ErrUnavailable
	lines := strings.Split(string(s.do("GET", "/v1/whatif?sessions=s", nil).raw), "\n")
	require.Contains(t, lines[1], `{"problem":{`, "it was broken off")
	for query, field := range map[string]string{
		"": "sessions", "?sessions=s&identity_id=ada": "identity_id", "?sessions=s&max_messages=1": "max_messages",
		"?sessions=s&summary=x": "summary", "?sessions=a,,b": "sessions", "?sessions=s&system=secret": "system",
		"?sessions=s&max_tokens=0": "max_tokens",
	} {
		a := s.do("GET", "/v1/whatif"+query, nil)
		requireProblem(t, a, http.StatusUnprocessableEntity, "invalid_argument", field)
		require.NotContains(t, string(a.raw), "secret")
	}
}

func TestWhoMayAskWhatIf(t *testing.T) {
	t.Parallel()
	i, callers := &ifs{}, ring{}
	for _, set := range []access.Scopes{writes, reads, follows, reads | follows} {
		for _, own := range []string{"", "ada"} {
			callers[fmt.Sprint(set, own)] = access.Caller{Name: "c", Scopes: set, IdentityID: own}
		}
	}
	s, _ := guarded(t, callers, func(c *config) { c.WhatIfs = i })
	for session, identity := range map[string]string{"own": "ada", "foreign": "bob"} {
		require.Equal(t, http.StatusCreated, s.as("all", "POST", "/v1/sessions/"+session+"/turns",
			map[string]any{"request_id": "r", "question_neutral": "q", "identity_id": identity}).status)
	}
	for _, set := range []access.Scopes{writes, reads, follows, reads | follows} {
		for _, own := range []string{"", "ada"} {
			for query, may := range map[string]bool{
				"?sessions=own": set&reads != 0, "?sessions=own,foreign": set&reads != 0 && own == "",
				"?identity_id=ada": set&reads != 0, "?identity_id=bob": set&reads != 0 && own == "",
				"?since=1970-01-01T00:00:00Z": set&follows != 0 && own == "" || set&reads != 0 && own != "",
			} {
				i.asked = services.WhatIfAsk{}
				a := s.as(fmt.Sprint(set, own), "GET", "/v1/whatif"+query, nil)
				what := fmt.Sprint(set.Names(), own, query)
				switch {
				case may:
					require.Equal(t, http.StatusOK, a.status, what)
					require.True(t, own == "" || i.asked.IdentityID == "ada" || query == "?sessions=own", what)
				case set&reads != 0 && own != "" && query == "?sessions=own,foreign":
					requireProblem(t, a, http.StatusNotFound, "session_not_found")
					require.Zero(t, i.asked, what)
				default:
					requireProblem(t, a, http.StatusForbidden, "forbidden")
					require.Zero(t, i.asked, what)
				}
			}
		}
	}
}
