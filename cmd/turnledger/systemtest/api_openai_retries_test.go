package systemtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// dying is the connection of OpenAI's client to a server that is killed while it answers.
type dying struct {
	http.RoundTripper

	// die, if set, kills the server around the next request, and is then unset.
	die func(send func() error)
}

var errDied = errors.New("the connection was reset")

// RoundTrip fails as a connection does whose server dies before the client has the answer.
func (d *dying) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if d.die == nil {
		return d.RoundTripper.RoundTrip(r)
	}
	die := d.die
	d.die = nil
	die(func() error {
		resp, err = d.RoundTripper.RoundTrip(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
	return nil, errDied
}

// OpenAI's client tries again by itself. Whenever its server is killed (before it has recorded a call, while it does,
// or after that, before the answer), each item is recorded once, and each conversation is made once.
//
//conformance:o38 o75
func TestRetriesOfTheOfficialClientRecordOnce(t *testing.T) {
	t.Parallel()
	kills := 4
	if stack.Long() {
		kills = 200
	}
	random := rand.New(rand.NewPCG(stack.Seed(t), 0))
	dir, address := stack.DataDir(t), stack.FreeAddress(t)
	var server *stack.Process
	begin := func() {
		server = stack.LaunchAt(t, address, nil, "serve", "--data-dir", dir)
		server.WaitReady(t)
	}
	begin()
	wire := &dying{RoundTripper: &http.Transport{DisableKeepAlives: true}}
	c := openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("none"),
		option.WithHTTPClient(&http.Client{Transport: wire}), option.WithMaxRetries(5))
	dies := func(send func() error) {
		switch random.IntN(3) {
		case 0: // after the call is recorded, before its answer
			require.NoError(t, send())
			server.Kill(t)
		case 1: // at some moment of it
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_ = send()
			}()
			select {
			case <-sent:
			case <-time.After(time.Duration(random.IntN(3000)) * time.Microsecond):
			}
			server.Kill(t)
			<-sent
		default: // before it
			server.Kill(t)
		}
		begin()
	}
	ctx := t.Context()
	made := map[string]bool{}
	var id string
	var want []string
	for n := range kills {
		if n%3 == 0 {
			wire.die = dies
			one, err := c.Conversations.New(ctx, conversations.ConversationNewParams{})
			require.NoError(t, err)
			require.False(t, made[one.ID])
			made[one.ID], id, want = true, one.ID, nil
		}
		for k, role := range []responses.EasyInputMessageRole{"user", "assistant", "user"} {
			if k == n%3 {
				wire.die = dies
			}
			text := fmt.Sprintf("%d/%d", n, k)
			got, err := c.Conversations.Items.New(ctx, id, conversations.ItemNewParams{
				Items: []responses.ResponseInputItemUnionParam{responses.ResponseInputItemParamOfMessage(text, role)},
			})
			require.NoError(t, err)
			require.Len(t, got.Data, 1)
			want = append(want, text)
		}
		var all []string
		pages := c.Conversations.Items.ListAutoPaging(ctx, id, conversations.ItemListParams{Order: "asc"})
		for pages.Next() {
			all = append(all, pages.Current().AsMessage().Content[0].Text)
		}
		require.NoError(t, pages.Err())
		require.Equal(t, want, all)
	}
	resp, err := http.Get(server.URL + "/v1/events?type=turnledger.session.described.v1")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	sessions, events := map[string]bool{}, json.NewDecoder(resp.Body)
	for {
		var e struct{ Subject string }
		err := events.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		sessions[e.Subject] = true
	}
	require.Equal(t, made, sessions, "no conversation but those that the client knows")
}
