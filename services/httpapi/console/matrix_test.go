package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// need is what a page needs: one of some scopes, or all of others, and whether a bound caller may see it.
type need struct {
	all, any access.Scopes
	// bound: a bound caller sees the page, of its own sessions only.
	bound, public bool
}

const (
	reads    = access.ContextRead
	follows  = access.EventsRead
	redacts  = access.TurnsRedact
	operates = access.Admin
	records  = access.TurnsWrite
)

// needs is what each page needs. A page that is not in it fails the test, so that its scope is somebody's decision.
var needs = map[string]need{
	"GET /console":               {public: true},
	"GET /console/assets/{file}": {public: true},
	"POST /console/signin":       {public: true},
	"POST /console/signout":      {public: true},
	"GET /console/":              {any: reads | follows, bound: true},
	"POST /console/":             {any: reads | follows, bound: true},
	"GET /console/sessions/{session_id}/turns/{turn_id}":          {all: reads | follows, bound: true},
	"GET /console/sessions/{session_id}/explain":                  {all: reads | follows, bound: true},
	"GET /console/sessions/{session_id}/live":                     {all: follows, bound: true},
	"GET /console/log/live":                                       {all: follows},
	"GET /console/playground":                                     {all: records | reads},
	"POST /console/playground/prompt":                             {all: records | reads},
	"POST /console/playground/send":                               {all: records | reads},
	"POST /console/playground/stream":                             {all: records | reads},
	"GET /console/open":                                           {any: reads | follows, bound: true},
	"GET /console/search":                                         {any: reads | follows, bound: true},
	"POST /console/search":                                        {any: reads | follows, bound: true},
	"GET /console/sessions/{session_id}/export":                   {all: follows, bound: true},
	"GET /console/sessions/{session_id}/turns/{turn_id}/redact":   {all: redacts, bound: true},
	"POST /console/sessions/{session_id}/turns/{turn_id}/redact":  {all: redacts, bound: true},
	"GET /console/sessions/{session_id}/turns/{turn_id}/correct":  {all: records, bound: true},
	"POST /console/sessions/{session_id}/turns/{turn_id}/correct": {all: records, bound: true},
	"GET /console/sessions/{session_id}/turns/{turn_id}/fork":     {all: records | reads, bound: true},
	"POST /console/sessions/{session_id}/turns/{turn_id}/fork":    {all: records | reads, bound: true},
	"GET /console/sessions/{session_id}/describe":                 {all: records, bound: true},
	"POST /console/sessions/{session_id}/describe":                {all: records, bound: true},
	"GET /console/sessions/{session_id}/reset":                    {all: records, bound: true},
	"POST /console/sessions/{session_id}/reset":                   {all: records, bound: true},
	"GET /console/sessions/{session_id}/erase":                    {all: redacts, bound: true},
	"POST /console/sessions/{session_id}/erase":                   {all: redacts, bound: true},
	"GET /console/identities/{identity_id}/erase":                 {all: redacts, bound: true},
	"POST /console/identities/{identity_id}/erase":                {all: redacts, bound: true},
	"GET /console/views/{name}/rebuild":                           {all: operates},
	"POST /console/views/{name}/rebuild":                          {all: operates},
	"POST /console/views/{name}/cancel":                           {all: operates},
	"POST /console/views/{name}/verify":                           {all: operates},
	"POST /console/deadletters/{projection}/{position}/retry":     {all: operates},
	"GET /console/deadletters/{projection}/{position}/drop":       {all: operates},
	"POST /console/deadletters/{projection}/{position}/drop":      {all: operates},
	"GET /console/log":                                            {all: follows},
	"GET /console/views":                                          {all: operates},
	"GET /console/deadletters":                                    {all: operates},
	"GET /console/receipts":                                       {all: redacts},
	"GET /console/keys":                                           {all: operates},
	"GET /console/stats":                                          {any: follows | operates},
	"GET /console/sessions/{session_id}":                          {all: reads, bound: true},
	"GET /console/sessions/{session_id}/events/{position}":        {all: follows, bound: true},
}

// acts matches pages of actions that read nothing of their session where the caller may not.
var acts = regexp.MustCompile("/(describe|reset|erase|redact|correct)$")

// whose matches the paths that name a session or an identity.
var whose = regexp.MustCompile("{(session|identity)_id}")

// TestTheMatrixOfAuthorisation opens every page with each set of scopes, by a key for all and by a bound one, on a
// session of its own, another's, an anonymous one, one that was erased and one that does not exist.
func TestTheMatrixOfAuthorisation(t *testing.T) {
	t.Parallel()
	sets := []access.Scopes{0, access.TurnsWrite, reads, follows, redacts, operates, reads | follows, every}
	callers := map[string]access.Caller{}
	for _, set := range sets {
		callers[fmt.Sprint("free", set)] = access.Caller{Name: "free", Scopes: set}
		callers[fmt.Sprint("bound", set)] = access.Caller{Name: "bound", Scopes: set, IdentityID: "ada"}
	}
	s := start(t, newRing(callers))
	positions := map[string]string{"unknown": "0:1"}
	for session, identity := range map[string]string{"own": "ada", "foreign": "bob", "erased": "ada", "anonymous": ""} {
		positions[session] = s.turn(session, "r", "question of "+session, "").Position.String()
		if identity != "" {
			s.link(session, identity)
		}
	}
	_, err := s.services.History.EraseSession(t.Context(), "erased", services.Erasure{})
	require.NoError(t, err)
	cells := 0
	for _, route := range s.api.Routes() {
		pattern := route.Method + " " + route.Path
		if !strings.Contains(pattern, " /console") {
			continue
		}
		want, ok := needs[pattern]
		require.True(t, ok, "%s: say in needs what it needs", pattern)
		require.Equal(t, want.public, route.Public, pattern)
		if want.public {
			continue
		}
		for _, set := range sets {
			for _, who := range []string{"free", "bound"} {
				cookie := s.cookieOf(fmt.Sprint(who, set))
				for _, session := range []string{"own", "foreign", "anonymous", "erased", "unknown"} {
					cells++
					id := session
					if session == "unknown" {
						id += fmt.Sprint(cells) // an action makes it known
					}
					identity := map[string]string{"own": "ada", "foreign": "bob", "erased": "ada"}[session]
					if identity == "" {
						identity = "nobody"
					}
					path := strings.NewReplacer("{identity_id}", identity, "{name}", "audit", "{projection}",
						"audit", "{session_id}", id, "{position}", positions[session],
						"{turn_id}", events.TurnID(id, "r").String()).Replace(route.Path)
					var form url.Values
					if route.Method == http.MethodPost {
						form = url.Values{}
					}
					a := s.do(route.Method, path, form, "Cookie", cookie)
					what := fmt.Sprintf("%s with %v, %s, %s session: %d", pattern, set.Names(), who, session, a.status)
					named := whose.MatchString(route.Path)
					if session == "erased" {
						require.NotContains(t, a.body, "question of erased", what)
					}
					read := needs[pattern].all&follows == 0 || strings.Contains(route.Path, "{turn_id}")
					switch {
					case set&want.all != want.all, want.any != 0 && set&want.any == 0:
						require.Equal(t, http.StatusForbidden, a.status, what)
					case who == "bound" && !want.bound:
						require.Equal(t, http.StatusForbidden, a.status, what)
					case who == "bound" && named && identity != "ada":
						require.Equal(t, http.StatusNotFound, a.status, what)
						require.NotContains(t, a.body, "question of")
					default:
						require.NotContains(t, []int{401, 403, 500}, a.status, what)
						if named && read && route.Method == http.MethodGet && !acts.MatchString(route.Path) {
							there := session != "unknown" && session != "erased"
							require.Equal(t, there, a.status == http.StatusOK, what)
						}
					}
				}
				require.Equal(t, http.StatusUnauthorized, s.do(route.Method, route.Path, nil).status, pattern)
			}
		}
	}
	require.NotZero(t, cells)
}
