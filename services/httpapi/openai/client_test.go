package openai_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
)

// OpenAI's client, as it is, makes, reads, changes and deletes conversations and items.
//
//conformance:o1 o3 o6 o20 o27 o75
func TestTheOfficialClient(t *testing.T) {
	t.Parallel()
	s := start(t)
	c, ctx := s.client(), t.Context()
	made, err := c.Conversations.New(ctx, conversations.ConversationNewParams{
		Metadata: shared.Metadata{"topic": "weather"},
		Items:    []responses.ResponseInputItemUnionParam{said("system", "be brief"), said("user", "weather?")},
	})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(made.ID, "conv_"))
	require.Len(t, made.ID, len("conv_")+48)
	require.Equal(t, map[string]any{"topic": "weather"}, made.Metadata)
	got, err := c.Conversations.Get(ctx, made.ID)
	require.NoError(t, err)
	require.Equal(t, made.CreatedAt, got.CreatedAt)

	added, err := c.Conversations.Items.New(ctx, made.ID, newItems(
		responses.ResponseInputItemParamOfFunctionCall(`{"city":"Rome"}`, "call_1", "weather"),
		output("call_1", "sunny"),
		said("assistant", "It is sunny."),
	))
	require.NoError(t, err)
	require.False(t, added.HasMore)
	require.Len(t, added.Data, 3, "the new items only")
	require.Equal(t, added.FirstID, added.Data[0].ID)
	require.Equal(t, added.LastID, added.Data[2].ID)
	require.Equal(t, "completed", added.Data[0].Status)
	require.Equal(t, "call_1", added.Data[1].CallID)
	require.Equal(t, "It is sunny.", added.Data[2].AsMessage().Content[0].Text)

	for _, order := range []conversations.ItemListParamsOrder{"asc", "desc"} {
		var got []string
		pages := c.Conversations.Items.ListAutoPaging(ctx, made.ID, conversations.ItemListParams{
			Order: order, Limit: param.NewOpt(int64(2)),
		})
		for pages.Next() {
			got = append(got, pages.Current().Type)
		}
		require.NoError(t, pages.Err())
		want := []string{"message", "message", "function_call", "function_call_output", "message"}
		if order == "desc" {
			slices.Reverse(want)
		}
		require.Equal(t, want, got)
	}
	one, err := c.Conversations.Items.Get(ctx, made.ID, added.Data[0].ID, conversations.ItemGetParams{})
	require.NoError(t, err)
	require.Equal(t, `{"city":"Rome"}`, one.Arguments.OfString)

	changed, err := c.Conversations.Update(ctx, made.ID, conversations.ConversationUpdateParams{
		Metadata: shared.Metadata{"mood": "good"},
	})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"topic": "weather", "mood": "good"}, changed.Metadata, "keys are merged")

	gone, err := c.Conversations.Delete(ctx, made.ID)
	require.NoError(t, err)
	require.True(t, gone.Deleted)
	_, err = c.Conversations.Get(ctx, made.ID)
	requireStatus(t, http.StatusNotFound, err)
	_, err = c.Conversations.Delete(ctx, made.ID)
	requireStatus(t, http.StatusNotFound, err)
	_, err = c.Conversations.Items.New(ctx, made.ID, newItems(said("user", "anybody there?")))
	requireStatus(t, http.StatusNotFound, err)
	_, err = c.Conversations.Items.List(ctx, made.ID, conversations.ItemListParams{})
	requireStatus(t, http.StatusNotFound, err)

	list, err := c.Models.List(ctx)
	require.NoError(t, err)
	require.Len(t, list.Data, 1)
	model, err := c.Models.Get(ctx, "echo")
	require.NoError(t, err)
	require.Equal(t, list.Data[0].ID, model.ID)
	_, err = c.Models.Get(ctx, "none")
	requireStatus(t, http.StatusNotFound, err)
}

func output(call, text string) (i responses.ResponseInputItemUnionParam) {
	i.OfFunctionCallOutput = &responses.ResponseInputItemFunctionCallOutputParam{
		CallID: param.NewOpt(call),
		Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: param.NewOpt(text)},
	}
	return i
}

func requireStatus(t *testing.T, want int, err error) {
	t.Helper()
	var e *sdk.Error
	require.True(t, errors.As(err, &e), "%v", err)
	require.Equal(t, want, e.StatusCode)
	require.Equal(t, "invalid_request_error", e.Type)
	require.NotEmpty(t, e.Response.Header.Get("x-request-id"))
	require.Equal(t, "false", e.Response.Header.Get("x-should-retry"))
}

// Every type of the official document is taken, shown, and given back by its id, by OpenAI's client.
//
//conformance:o7 o8 o71
func TestEveryTypeOfItem(t *testing.T) {
	t.Parallel()
	s := start(t)
	c, ctx := s.client(), t.Context()
	id := s.begin(user("go"))
	for kind, item := range samples {
		var given responses.ResponseInputItemUnionParam
		added, err := c.Conversations.Items.New(ctx, id, newItems(given), option.WithRequestBody("application/json",
			[]byte(`{"items":[`+item+`]}`)))
		require.NoError(t, err, kind)
		require.Len(t, added.Data, 1, kind)
		require.Equal(t, kind, added.Data[0].Type)
		one, err := c.Conversations.Items.Get(ctx, id, added.Data[0].ID, conversations.ItemGetParams{})
		require.NoError(t, err, kind)
		require.JSONEq(t, added.Data[0].RawJSON(), one.RawJSON(), kind)
	}
	require.Len(t, s.list(id, 7), len(samples)+1)
	require.Len(t, samples, 28)
	back := s.must("POST", "/v1/conversations/"+id+"/items",
		`{"items":[{"type":"of_tomorrow","dream":[1,{"deep":null}],"id":"any"}]}`, openaitest.Unofficial, "1")["data"]
	require.Equal(t, []any{map[string]any{
		"type": "of_tomorrow", "dream": []any{1.0, map[string]any{"deep": nil}}, "id": "any",
	}}, back)
	if os.Getenv(openaitest.Variable) != "" {
		require.EqualValues(t, 28+28+5+1, s.document.Checked.Load())
	}
}

// Pages are exact, in both directions and whatever their size.
//
//conformance:o4 o15 o71
func TestPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin()
	empty := s.must("GET", "/v1/conversations/"+id+"/items", "")
	require.Nil(t, empty["first_id"])
	require.Nil(t, empty["last_id"])
	require.Equal(t, false, empty["has_more"])
	var want []string
	for n := range 15 {
		s.post(id, user(fmt.Sprint("q", n)), assistant(fmt.Sprint("a", n)))
		want = append(want, fmt.Sprint("q", n), fmt.Sprint("a", n))
	}
	for _, size := range []int{1, 7, 30, 100} {
		require.Equal(t, want, texts(s.list(id, size)), size)
	}
	reversed := slices.Clone(want)
	slices.Reverse(reversed)
	var got []any
	after := ""
	for more := true; more; {
		page := s.must("GET", "/v1/conversations/"+id+"/items?limit=10"+after, "")
		got = append(got, page["data"].([]any)...)
		more = page["has_more"].(bool)
		after = "&after=" + page["last_id"].(string)
	}
	require.Equal(t, reversed, texts(got), "desc is the default, and exactly the reverse")
	all := s.list(id, 100)
	require.Equal(t, texts(all[4:7]), texts(s.must("GET",
		"/v1/conversations/"+id+"/items?order=asc&limit=3&after="+ids(all)[3], "")["data"].([]any)))
}
