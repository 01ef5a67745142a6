package session_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
)

//conformance:h12 h13 h18
func TestPolicy(t *testing.T) {
	t.Parallel()
	const image = `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]`
	t.Run("does not edit its caller's values", func(t *testing.T) {
		t.Parallel()
		messages, metadata := json.RawMessage(image), json.RawMessage(`{"secret":1,"locale":"de"}`)
		start := decide.Start{SessionID: "s", RequestID: "r", Question: events.Question{QuestionTranslated: "t",
			QuestionMessages: messages, Metadata: metadata}}
		finalize := decide.Finalize{SessionID: "s", Answer: events.Answer{AnswerNeutral: "a",
			AnswerMessages: messages}, Metadata: metadata}
		text := "data:image/png;base64,AAAA"
		correct := decide.Correct{SessionID: "s", RequestID: "c", AnswerNeutral: &text}
		clean, _ := must.Two(policy.NormalStart(start))(t)
		require.NotEqual(t, clean, start)
		must.Two(policy.NormalFinalize(finalize))(t)
		require.Equal(t, message.ImageText, *must.Get(policy.NormalCorrect(correct))(t).AnswerNeutral)
		require.Equal(t, "data:image/png;base64,AAAA", text)
		require.Equal(t, image, string(messages))
		require.Equal(t, `{"secret":1,"locale":"de"}`, string(metadata))
		require.Empty(t, start.Question.QuestionNeutral)
	})
	t.Run("what it lets through is an event, and is let through again as it is", func(t *testing.T) {
		t.Parallel()
		start := decide.Start{SessionID: "s", RequestID: "r",
			Question: events.Question{QuestionMessages: json.RawMessage(image), QuestionNeutral: "q"}}
		once, _ := must.Two(policy.NormalStart(start))(t)
		twice, _ := must.Two(policy.NormalStart(once))(t)
		require.Equal(t, once, twice)
		start.Question.QuestionNeutral = ""
		once, _ = must.Two(policy.NormalStart(start))(t)
		w := newWorld("s", session.Rules{})
		require.Equal(t, session.Started, w.append(once.On(w.live).Facts[0]).Kind)
	})
	t.Run("a refusal names the field and holds no content", func(t *testing.T) {
		t.Parallel()
		_, _, err := policy.NormalStart(decide.Start{SessionID: "s", RequestID: "secret\n",
			Question: events.Question{QuestionNeutral: "secret"}})
		require.ErrorIs(t, err, decide.ErrInvalid)
		require.NotContains(t, err.Error(), "secret")
		var invalid *decide.Invalid
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "request_id", invalid.Field)
	})
}

//conformance:h13
func TestRefusals(t *testing.T) {
	t.Parallel()
	t.Run("are told apart by their codes", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, fmt.Errorf("finalize: %w", decide.ErrTurnRedacted), decide.ErrTurnRedacted)
		require.ErrorIs(t, &decide.Refusal{Code: session.CodeTurnRedacted, Detail: "other words"},
			decide.ErrTurnRedacted)
		require.NotErrorIs(t, decide.ErrTurnRedacted, decide.ErrTurnReplaced)
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
			require.Equal(t, c.want, string(session.MergeMetadata(json.RawMessage(c.base),
				json.RawMessage(c.over))))
		})
	}
}

// TestImageDataIsNotKept goes through the shapes in which senders put image bytes.
//
//conformance:f4
func TestImageDataIsNotKept(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		"iVBORw0KGgo" + strings.Repeat("Aa1+/", 20) + "==",
		"/9j/" + strings.Repeat("4AAQSk", 20),
		"R0lGODlh" + strings.Repeat("AQAB", 30),
		"UklGRiQAAABXRUJQ" + strings.Repeat("VlA4", 30),
	} {
		for _, given := range []string{
			`{"role":"user","content":"look","images":["` + data + `"]}`,
			`{"role":"user","content":[{"type":"image","image":"` + data + `"}]}`,
			`{"role":"user","content":[{"type":"input_file","file_data":"` + data + `","filename":"x.png"}]}`,
			`{"role":"user","content":[{"type":"file","file":{"file_data":"data:image/png;base64,` + data + `"}}]}`,
			`{"role":"user","content":[{"type":"image_url","image_url":{"url":" data:image/png;base64,` + data + `"}}]}`,
			`{"role":"tool","content":"{\"screenshot\": \"` + strings.ReplaceAll(data, "/", `\\/`) + `\", \"ok\": true}"}`,
			`{"role":"tool","content":"before ` + data + ` after"}`,
		} {
			start, _ := must.Two(decide.Policy{}.NormalStart(decide.Start{SessionID: "s", RequestID: "r",
				Question: events.Question{QuestionNeutral: "q", QuestionMessages: []byte("[" + given + "]")}}))(t)
			kept := string(start.Question.QuestionMessages)
			require.NotContains(t, kept, data[len(data)-20:], given)
			require.Contains(t, kept, message.ImageText)
			require.NotContains(t, kept, `"url"`, "a text part stands in the image's place")
		}
	}
	// What only looks like it stays.
	for _, text := range []string{
		"see /9j/a.txt and iVBORw0KGgo", "UklGR is how RIFF begins", "data:text/plain;base64,aGVsbG8=",
		"data:image/png;base64, alone",
		"token x" + strings.Repeat("Ab1", 40) + "SUkqA" + strings.Repeat("Ab1", 40),
	} {
		require.Equal(t, text, cleaned(t, text))
	}
}

func cleaned(t *testing.T, text string) string {
	t.Helper()
	start, _ := must.Two(decide.Policy{}.NormalStart(decide.Start{SessionID: "s", RequestID: "r",
		Question: events.Question{QuestionNeutral: text}}))(t)
	return start.Question.QuestionNeutral
}

// TestWrappedImageDataIsNotKept: encoders break base64 into lines, and what stands
// behind it stays.
func TestWrappedImageDataIsNotKept(t *testing.T) {
	t.Parallel()
	data := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" +
		strings.Repeat("a picture of a cat, ", 60)))
	for _, width := range []int{64, 76} {
		for _, brk := range []string{"\n", "\r\n", `\n`, "\n    "} {
			var lines []string
			for part := range slices.Chunk([]byte(data), width) {
				lines = append(lines, string(part))
			}
			text := strings.Join(lines, brk)
			for _, c := range [][2]string{
				{"see data:image/png;base64," + text + brk + "What is it?", "see " + message.ImageText + brk +
					"What is it?"},
				{`{"shot":"` + text + `"}`, `{"shot":"` + message.ImageText + `"}`},
				{"![a](data:image/png;base64," + text + ")" + brk + "so", "![a](" + message.ImageText + ")" + brk + "so"},
				{text, message.ImageText},
			} {
				require.Equal(t, c[1], cleaned(t, c[0]), "%d %q", width, brk)
			}
		}
	}
}

// TestImagesOfAnyFormatAreNotKeptWhereTheyAreNamed: a part that says it is an image
// holds its bytes, whatever they are, and so do short texts beside the question.
func TestImagesOfAnyFormatAreNotKeptWhereTheyAreNamed(t *testing.T) {
	t.Parallel()
	bmp := base64.StdEncoding.EncodeToString([]byte("BM" + strings.Repeat("\x01\x7f\xe9", 300)))
	for _, given := range []string{
		`{"role":"user","content":[{"type":"image","image_base64":"` + bmp + `"}]}`,
		`{"role":"user","content":[{"image":{"format":"png","source":{"bytes":"` + bmp + `"}}}]}`,
		`{"role":"user","content":"what?","images":["` + bmp + `"]}`,
		`{"role":"assistant","content":[{"type":"output_image","b64_json":"` + bmp + `"}]}`,
	} {
		start, _ := must.Two(decide.Policy{}.NormalStart(decide.Start{SessionID: "s", RequestID: "r",
			Question: events.Question{QuestionNeutral: "q", QuestionMessages: []byte("[" + given + "]")}}))(t)
		require.NotContains(t, string(start.Question.QuestionMessages), bmp[len(bmp)-20:], given)
		require.Contains(t, string(start.Question.QuestionMessages), message.ImageText)
	}
	digest := `{"role":"user","content":[{"type":"image_url","sha256":"` + strings.Repeat("0f", 32) + `","image_url":{"url":"https://example.org/` +
		strings.Repeat("a", 80) + `"}}]}`
	url := "data:image/bmp;base64," + bmp
	policy := decide.Policy{MetadataKeys: []string{"channel"}}
	start, _, err := policy.NormalStart(decide.Start{SessionID: "s", RequestID: "r", Question: events.Question{
		QuestionNeutral: "q", PipelineName: url, Consultant: url, Repository: url,
		Metadata:         []byte(`{"channel":{"icon":"` + url + `","n":1E400}}`),
		QuestionMessages: []byte("[" + digest + "]"),
	}})
	require.NoError(t, err)
	q := start.Question
	require.Equal(t, []string{message.ImageText, message.ImageText, message.ImageText},
		[]string{q.PipelineName, q.Consultant, q.Repository})
	require.JSONEq(t, "["+digest+"]", string(q.QuestionMessages), "a reference is kept")
	require.Equal(t, `{"channel":{"icon":"`+message.ImageText+`","n":1E400}}`, string(q.Metadata))
}
