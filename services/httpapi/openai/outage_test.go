package openai_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/httpapi/openai"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// sometimes reads sessions, but while it is down.
type sometimes struct {
	services.SessionReader
	down *atomic.Bool
}

func (r sometimes) Read(ctx context.Context, ask services.Ask) (services.Reading, error) {
	if r.down.Load() {
		return services.Reading{}, fmt.Errorf("read: %w", jetlog.ErrUnavailable)
	}
	return r.SessionReader.Read(ctx, ask)
}

// placesOfAda starts a stack for a caller who is bound to an identity, and returns what she has, and the places of ids.
func placesOfAda(t *testing.T, log *jetlog.Log, settings ...setting) (*stack, holdings, []place) {
	t.Helper()
	callers := ring{"": {Name: "all", Scopes: all}, "all": {Name: "all", Scopes: all}}
	callers["ada"] = access.Caller{Name: "ada", Scopes: all &^ access.Admin, IdentityID: "ada"}
	s := startOn(t, log, append(settings, answeredBy(answer.Echo{}), func(s *stack) {
		s.wire.Open, s.wire.Auth, s.cfg.Lists = false, callers, &lister{}
	})...)
	own := s.hold("ada")
	api := wire.New(s.without().wire)
	v1.Mount(api, s.native)
	openai.Mount(api, s.cfg)
	places := placesOf(api.Routes(), own)
	require.GreaterOrEqual(t, len(places), 49)
	slices.SortStableFunc(places, func(a, b place) int { return rank(a) - rank(b) })
	return s, own, places
}

// Where the check of reach, the view or the log fails, an id of the caller's own is never answered as what there is
// not: an application would believe that its history is gone. It is 503, and may be asked again. What an id names is
// found by asking with it, and with an id of nothing, while all is well.
//
//conformance:l14
func TestAnOutageIsNoAbsence(t *testing.T) {
	t.Parallel()
	named := map[string]bool{} // place and kind of an id that names something there
	s, own, places := placesOfAda(t, natstest.Log(t, 1))
	ask := func(s *stack, p place, id string) reply {
		method, _, _ := strings.Cut(p.pattern, " ")
		path, body := p.put(id)
		return s.as("ada", method, path, body)
	}
	for _, p := range places {
		for _, kind := range slices.Sorted(maps.Keys(own)) {
			none, said := ask(s, p, nothing(own[kind])), ask(s, p, own[kind])
			if said.status < 300 && none.status >= http.StatusBadRequest {
				named[p.pattern+p.name+kind] = true
			}
		}
	}
	require.Greater(t, len(named), 40)

	for what, begin := range map[string]func(*testing.T) (s *stack, own holdings, places []place, down func()){
		"reach": func(t *testing.T) (*stack, holdings, []place, func()) {
			down := new(atomic.Bool)
			s, own, places := placesOfAda(t, natstest.Log(t, 1), func(s *stack) {
				s.cfg.LinkReader = sometimes{s.cfg.LinkReader, down}
			})
			return s, own, places, func() { down.Store(true) }
		},
		"view": func(t *testing.T) (*stack, holdings, []place, func()) {
			down := new(atomic.Bool)
			s, own, places := placesOfAda(t, natstest.Log(t, 1), func(s *stack) {
				s.cfg.Sessions = sometimes{s.cfg.Sessions, down}
			})
			return s, own, places, func() { down.Store(true) }
		},
		"log": func(t *testing.T) (*stack, holdings, []place, func()) {
			server := natstest.Server(t)
			s, own, places := placesOfAda(t, natstest.LogOn(t, server, 1))
			return s, own, places, func() { server.Stop() }
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, own, places, down := begin(t)
			down()
			var all sync.WaitGroup
			for _, p := range places {
				for kind, id := range own {
					if !named[p.pattern+p.name+kind] {
						continue
					}
					check := func() {
						a := ask(s, p, id)
						at := fmt.Sprintf("%s %s, %s: %d %s", p.pattern, p.name, kind, a.status, a.raw)
						assert.True(t, a.status == http.StatusServiceUnavailable || what == "view" && a.status < 300,
							at)
						assert.NotEqual(t, "false", a.header.Get("X-Should-Retry"), at)
					}
					if what == "view" { // writes need no view: the order of calls counts
						check()
					} else { // a log that is gone is waited for
						all.Go(check)
					}
				}
			}
			all.Wait()
		})
	}
}

// charged notes who was charged for requests.
type charged struct{ sessions, identities []string }

func (*charged) ByIdentity() bool { return true }

func (c *charged) Allow(_, sessionID, identityID string) (time.Duration, bool) {
	c.sessions, c.identities = append(c.sessions, sessionID), append(c.identities, identityID)
	return 0, true
}

// A caller that does not reach a conversation charges neither it nor its owner, on any route, and is not told that it
// asks too often. A caller that does is charged before anything is read for it.
func TestWhoDoesNotReachChargesNobody(t *testing.T) {
	t.Parallel()
	callers := ring{"": {Name: "all", Scopes: all}, "all": {Name: "all", Scopes: all}}
	for _, name := range []string{"ada", "bob"} {
		callers[name] = access.Caller{Name: name, Scopes: all &^ access.Admin, IdentityID: name}
	}
	rates := &charged{}
	s := start(t, answeredBy(answer.Echo{}), func(s *stack) {
		s.wire.Open, s.wire.Auth, s.cfg.Lists = false, callers, &lister{}
		s.cfg.Limiter = rates
	})
	own, foreign := s.hold("ada"), s.hold("bob")
	api := wire.New(s.without().wire)
	v1.Mount(api, s.native)
	openai.Mount(api, s.cfg)
	for _, p := range placesOf(api.Routes(), own) {
		for _, id := range foreign {
			*rates = charged{}
			method, _, _ := strings.Cut(p.pattern, " ")
			path, body := p.put(id)
			s.as("ada", method, path, body)
			require.NotContains(t, rates.identities, "bob", "%s %s %s", method, path, body)
			for _, session := range []string{foreign["conversation"], foreign["native"]} {
				require.NotContains(t, rates.sessions, session, "%s %s %s", method, path, body)
			}
		}
	}
	*rates = charged{}
	s.as("ada", "POST", "/v1/responses", `{"input":"q","previous_response_id":"`+own["response of a conversation"]+`"}`)
	require.Equal(t, []string{own["conversation"]}, rates.sessions, "the session that it goes on with")
	require.Equal(t, []string{"ada"}, rates.identities)
	for _, previous := range []string{foreign["response of a conversation"], foreign["response"], "resp_none"} {
		*rates = charged{}
		s.as("ada", "POST", "/v1/responses", `{"input":"q","previous_response_id":"`+previous+`"}`)
		require.Empty(t, rates.identities, "who does not reach %s", previous)
	}
}
