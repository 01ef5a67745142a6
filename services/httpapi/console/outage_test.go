package console_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/console"
)

// away reads no session.
type away struct{}

func (away) Read(context.Context, services.Ask) (services.Reading, error) {
	return services.Reading{}, fmt.Errorf("read: %w", jetlog.ErrUnavailable)
}

// Where the check of reach, the view, the lists or the log fail, no page says that there is no session, and none shows
// an empty list: it is 503.
//
//conformance:l14
func TestAnOutageIsNoAbsence(t *testing.T) {
	t.Parallel()
	own := "own"
	type begun struct {
		*stack
		links *reader
		stop  func()
		ask   func(path string) answer
		paths []string
	}
	begin := func(t *testing.T) (b begun) {
		server := natstest.Server(t)
		b.stop = server.Stop
		callers := map[string]access.Caller{"ada": {Name: "ada", Scopes: every &^ access.Admin, IdentityID: "ada"}}
		b.stack = startOn(t, natstest.LogOn(t, server, 1), newRing(callers), func(c *console.Config) {
			b.links = &reader{c.LinkReader}
			c.LinkReader, c.Deadline = b.links, 5*time.Second
		})
		at := b.turn(own, "r", "question", "answer").Position
		b.link(own, "ada")
		cookie := b.cookieOf("ada")
		for _, route := range b.api.Routes() {
			if route.Method == http.MethodGet && strings.Contains(route.Path, "/console/") && route.Admit != nil &&
				!strings.HasSuffix(route.Path, "/live") {
				path := strings.NewReplacer("{identity_id}", "ada", "{session_id}", own, "{position}", at.String(),
					"{turn_id}", events.TurnID(own, "r").String()).Replace(route.Path)
				b.paths = append(b.paths, path)
			}
		}
		b.ask = func(path string) answer { return b.page(path, cookie) }
		return b
	}
	all := begin(t)
	well := map[string]bool{} // pages that show something of the session
	for _, path := range all.paths {
		if all.ask(path).status == http.StatusOK {
			well[path] = true
		}
	}
	require.Greater(t, len(well), 8)

	of := func(page string) string { return "/console/sessions/own/" + page }
	for part, answered := range map[string][]string{ // pages that do not need the part
		"reach": {"/console/", "/console/search", "/console/identities/ada/erase"},
		"view": {"/console/search", "/console/identities/ada/erase", of("erase"), of("reset"), of("export"),
			of("events/0:2"), of("events/0:1")},
		"log": {"/console/", "/console/search"},
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			b := begin(t)
			switch part {
			case "reach":
				b.links.SessionReader = away{}
			case "view":
				b.reader.SessionReader, b.lists.err = away{}, projections.ErrUnavailable
			case "log":
				b.stop()
			}
			var all sync.WaitGroup
			for _, path := range b.paths {
				if !well[path] {
					continue
				}
				all.Go(func() {
					want := http.StatusServiceUnavailable
					if slices.Contains(answered, path) {
						want = http.StatusOK
					}
					a := b.ask(path)
					assert.Equal(t, want, a.status, "%s: %s", path, a.body)
				})
			}
			all.Wait()
		})
	}
}
