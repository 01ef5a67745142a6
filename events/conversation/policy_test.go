package conversation_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

func TestPolicy(t *testing.T) {
	t.Parallel()
	const image = `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]`
	t.Run("does not edit its caller's values", func(t *testing.T) {
		t.Parallel()
		messages, metadata := json.RawMessage(image), json.RawMessage(`{"secret":1,"locale":"de"}`)
		start := conversation.Start{SessionID: "s", RequestID: "r", Question: events.Question{QuestionTranslated: "t", QuestionMessages: messages, Metadata: metadata}}
		finalize := conversation.Finalize{SessionID: "s", Answer: events.Answer{AnswerNeutral: "a", AnswerMessages: messages}, Metadata: metadata}
		text := "data:image/png;base64,AAAA"
		correct := conversation.Correct{SessionID: "s", RequestID: "c", AnswerNeutral: &text}
		clean, _, err := policy.NormalStart(start)
		require.NoError(t, err)
		require.NotEqual(t, clean, start)
		_, _, err = policy.NormalFinalize(finalize)
		require.NoError(t, err)
		fixed, err := policy.NormalCorrect(correct)
		require.NoError(t, err)
		require.Equal(t, conversation.ImageText, *fixed.AnswerNeutral)
		require.Equal(t, "data:image/png;base64,AAAA", text)
		require.Equal(t, image, string(messages))
		require.Equal(t, `{"secret":1,"locale":"de"}`, string(metadata))
		require.Empty(t, start.Question.QuestionNeutral)
	})
	t.Run("what it lets through is an event, and is let through again as it is", func(t *testing.T) {
		t.Parallel()
		start := conversation.Start{SessionID: "s", RequestID: "r", Question: events.Question{QuestionMessages: json.RawMessage(image), QuestionNeutral: "q"}}
		once, _, err := policy.NormalStart(start)
		require.NoError(t, err)
		twice, _, err := policy.NormalStart(once)
		require.NoError(t, err)
		require.Equal(t, once, twice)
		start.Question.QuestionNeutral = ""
		once, _, err = policy.NormalStart(start)
		require.NoError(t, err)
		w := newWorld("s", conversation.Rules{})
		require.Equal(t, conversation.Started, w.append(w.live.DecideStart(once).Facts[0]).Kind)
	})
	t.Run("a refusal names the field and holds no content", func(t *testing.T) {
		t.Parallel()
		_, _, err := policy.NormalStart(conversation.Start{SessionID: "s", RequestID: "secret\n", Question: events.Question{QuestionNeutral: "secret"}})
		require.ErrorIs(t, err, conversation.ErrInvalid)
		require.NotContains(t, err.Error(), "secret")
		var invalid *conversation.Invalid
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "request_id", invalid.Field)
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	t.Run("are told apart by their codes", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, fmt.Errorf("finalize: %w", conversation.ErrTurnRedacted), conversation.ErrTurnRedacted)
		require.ErrorIs(t, &conversation.Refusal{Code: conversation.CodeTurnRedacted, Detail: "other words"}, conversation.ErrTurnRedacted)
		require.NotErrorIs(t, conversation.ErrTurnRedacted, conversation.ErrTurnReplaced)
	})
}

func TestMergeMetadata(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ property, base, over, want string }{
		{"the later one wins", `{"a":1,"b":2}`, `{"b":3,"c":4}`, `{"a":1,"b":3,"c":4}`},
		{"nothing over something", `{"a":1}`, ``, `{"a":1}`},
		{"something over nothing", ``, `{"a":1}`, `{"a":1}`},
		{"no HTML escaping", `{"a":"<&>"}`, `{"b":1}`, `{"a":"<&>","b":1}`},
		{"what is no object is left out", `{"a":1}`, `[1]`, `{"a":1}`},
	} {
		t.Run(c.property, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, string(conversation.MergeMetadata(json.RawMessage(c.base), json.RawMessage(c.over))))
		})
	}
}

// TestImageDataIsNotKept goes through the shapes in which senders put image bytes.
func TestImageDataIsNotKept(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		"iVBORw0KGgo" + strings.Repeat("Aa1+/", 20) + "==",
		"/9j/" + strings.Repeat("4AAQSk", 20),
		"R0lGODlh" + strings.Repeat("AQAB", 30),
		"UklGRiQAAABXRUJQ" + strings.Repeat("VlA4", 30),
	} {
		for _, message := range []string{
			`{"role":"user","content":"look","images":["` + data + `"]}`,
			`{"role":"user","content":[{"type":"image","image":"` + data + `"}]}`,
			`{"role":"user","content":[{"type":"input_file","file_data":"` + data + `","filename":"x.png"}]}`,
			`{"role":"user","content":[{"type":"file","file":{"file_data":"data:image/png;base64,` + data + `"}}]}`,
			`{"role":"user","content":[{"type":"image_url","image_url":{"url":" data:image/png;base64,` + data + `"}}]}`,
			`{"role":"tool","content":"{\"screenshot\": \"` + strings.ReplaceAll(data, "/", `\\/`) + `\", \"ok\": true}"}`,
			`{"role":"tool","content":"before ` + data + ` after"}`,
		} {
			start, _, err := conversation.Policy{}.NormalStart(conversation.Start{SessionID: "s", RequestID: "r",
				Question: events.Question{QuestionNeutral: "q", QuestionMessages: []byte("[" + message + "]")}})
			require.NoError(t, err)
			kept := string(start.Question.QuestionMessages)
			require.NotContains(t, kept, data[len(data)-20:], message)
			require.Contains(t, kept, conversation.ImageText)
			require.NotContains(t, kept, `"url"`, "a text part stands in the image's place")
		}
	}
	// What only looks like it stays.
	for _, text := range []string{"see /9j/a.txt and iVBORw0KGgo", "UklGR is how RIFF begins", "data:text/plain;base64,aGVsbG8="} {
		start, _, err := conversation.Policy{}.NormalStart(conversation.Start{SessionID: "s", RequestID: "r", Question: events.Question{QuestionNeutral: text}})
		require.NoError(t, err)
		require.Equal(t, text, start.Question.QuestionNeutral)
	}
}
