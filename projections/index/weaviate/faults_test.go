package weaviate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections/index/indextest"
	"github.com/turnledger/turnledger/projections/index/weaviate/weaviatetest"
)

// Whatever happens to the server while the view is fed, the index is what the log says once the server is back.
func TestTheIndexSurvivesItsServer(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(s *weaviatetest.Server, between func()){
		"killed":   func(s *weaviatetest.Server, between func()) { between(); s.Kill(); s.Restart() },
		"away":     func(s *weaviatetest.Server, between func()) { s.Kill(); between(); s.Restart() },
		"hangs":    func(s *weaviatetest.Server, between func()) { s.Pause(); between(); s.Resume() },
		"emptied":  func(s *weaviatetest.Server, between func()) { between(); s.Empty() },
		"restored": func(s *weaviatetest.Server, between func()) { s.Save(); between(); s.Back() },
		"emptied, and makes collections by itself": func(s *weaviatetest.Server, between func()) {
			s.MakesCollections()
			between()
			s.Empty()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := weaviatetest.Start(t)
			w := indextest.NewWorld(t, s.Client().Store(), 1)
			v := w.Open(t)
			w.Feed(t, v)
			w.Append(t, indextest.Linked("s", "ann"))
			for i := range 20 {
				w.Append(t, indextest.Turn("s", fmt.Sprint("before-", i), fmt.Sprint("question ", i), "yes")...)
			}
			w.CaughtUp(t, v)
			fault(s, func() {
				for i := range 20 {
					w.Append(t, indextest.Turn("s", fmt.Sprint("during-", i), fmt.Sprint("more ", i), "yes")...)
				}
				for i := range 10 {
					w.Append(t, &events.TurnRedacted{
						TurnID: events.TurnID("s", fmt.Sprint("before-", i)), SessionID: "s",
					})
				}
				if name != "away" && name != "hangs" {
					w.CaughtUp(t, v)
				}
			})
			held := func() int {
				objects := 0
				all, err := w.Store.List(t.Context())
				if err != nil {
					return 0
				}
				for _, c := range all {
					page, err := w.Store.Page(t.Context(), c.Name, [16]byte{}, 1000)
					for _, o := range page {
						if o.Session != "" && err == nil {
							objects++
						}
					}
				}
				return objects
			}
			require.Eventually(t, func() bool { return held() == 30 }, time.Minute, 50*time.Millisecond, "%d", held())
			w.CaughtUp(t, v)
			require.Empty(t, w.Differences(t, v))
			require.NoError(t, v.Sweep(t.Context()))
			all, err := w.Store.List(t.Context())
			require.NoError(t, err)
			require.Len(t, all, 1)
			require.Equal(t, 30, held())
		})
	}
}
