package openai_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/model/anthropic"
	"github.com/turnledger/turnledger/services/model/endpoint"
	chatopenai "github.com/turnledger/turnledger/services/model/openai"
	chatresponses "github.com/turnledger/turnledger/services/model/responses"
)

// picture is an image with its data in its address.
var picture = "data:image/png;base64," + base64.StdEncoding.EncodeToString(
	[]byte("\x89PNG\r\n\x1a\n"+strings.Repeat("the pixels of a picture", 200)))

// vendors are the forms in which a model is asked.
var vendors = map[string]func(endpoint.Config) services.Model{
	"chat": chatopenai.New, "anthropic": anthropic.New, "responses": chatresponses.New,
}

// behind returns an endpoint that a test scripts, and a stack whose model speaks a vendor's form.
func behind(t *testing.T, vendor string, script func(prompt []string) modeltest.Answer) (*modeltest.Server, *stack) {
	t.Helper()
	server := modeltest.New(t, script)
	answers := answeredBy(vendors[vendor](endpoint.Config{URL: server.URL + "/v1", Key: "k", Name: "m"}))
	return server, start(t, answers, func(s *stack) { s.cfg.HostedTools = vendor == "responses" })
}

// messagesIn returns the messages, or the items, of a request to a model.
func messagesIn(t *testing.T, body json.RawMessage) []any {
	t.Helper()
	var sent map[string]any
	require.NoError(t, json.Unmarshal(body, &sent))
	list, _ := sent["messages"].([]any)
	input, _ := sent["input"].([]any)
	return append(list, input...)
}

// imageParts are the picture in the forms of the vendors.
var imageParts = map[string]any{
	"chat": map[string]any{"type": "image_url", "image_url": map[string]any{"url": picture, "detail": "low"}},
	"anthropic": map[string]any{"type": "image", "source": map[string]any{
		"type": "base64", "media_type": "image/png", "data": strings.TrimPrefix(picture, "data:image/png;base64,")}},
	"responses": map[string]any{"type": "input_image", "image_url": picture, "detail": "low"},
}

// What a stream shows of a model's thoughts is what the response shows of them: under the same id, by which a later
// request refers to them, and what they are sealed with only if it is asked for.
//
//conformance:o64
func TestThoughtsOfAStreamAreThoseOfTheResponse(t *testing.T) {
	t.Parallel()
	for _, vendor := range []string{"anthropic", "responses"} {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			_, s := behind(t, vendor, func([]string) modeltest.Answer {
				return modeltest.Answer{Thoughts: "Let me look. \nThe shed first.",
					Calls: []modeltest.Call{{ID: "c1", Name: "f", Arguments: "{}"}}}
			})
			for _, store := range []string{"true", "false"} {
				for _, include := range []string{"", `"include":["reasoning.encrypted_content"],`} {
					id := s.begin()
					conversation := `"conversation":"` + id + `"}`
					a := s.do("POST", "/v1/responses", `{"stream":true,"input":"go","reasoning":{"effort":"low"},
						"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"store":`+store+`,`+include+conversation)
					shown, summary := map[string][]any{}, []any{}
					all := eventsOf(t, a.raw)
					for _, e := range all {
						shown[e["type"].(string)] = append(shown[e["type"].(string)], e["item"])
						if e["type"] == "response.reasoning_summary_part.done" {
							require.InDelta(t, len(summary), e["summary_index"], 0)
							summary = append(summary, e["part"])
						}
					}
					output := all[len(all)-1]["response"].(map[string]any)["output"].([]any)
					require.Equal(t, []string{"reasoning", "function_call"}, texts(output))
					require.Equal(t, output, shown["response.output_item.done"])
					require.Equal(t, ids(output), ids(shown["response.output_item.added"]))
					require.Equal(t, output[0].(map[string]any)["summary"], summary)
					require.Equal(t, include != "", strings.Contains(a.raw, `"encrypted_content"`))
					if store == "true" {
						s.must("POST", "/v1/responses", `{"input":[{"type":"item_reference","id":"`+ids(output)[0]+`"},
							`+user("and?")+`],`+conversation)
					}
				}
			}
		})
	}
}

// The model sees the images of the request that it answers; afterwards a text stands in their place.
func TestImagesReachTheModel(t *testing.T) {
	t.Parallel()
	for vendor := range vendors {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			model, s := behind(t, vendor, func([]string) modeltest.Answer { return modeltest.Answer{Text: "A cat."} })
			content := `[{"role":"user","content":[{"type":"input_text","text":"what is this?"},
				{"type":"input_image","image_url":"` + picture + `","detail":"low"}]}]`
			id := s.begin()
			for _, where := range []string{`,"conversation":"` + id + `"`, ``, `,"store":false`} {
				first := s.must("POST", "/v1/responses", `{"input":`+content+where+`}`)
				messages := messagesIn(t, <-model.Bodies)
				parts := messages[len(messages)-1].(map[string]any)["content"].([]any)
				require.Len(t, parts, 2, where)
				require.Equal(t, imageParts[vendor], parts[1], where)
				if first["store"] == false {
					continue
				}
				s.must("POST", "/v1/responses", `{"input":"and?","previous_response_id":"`+first["id"].(string)+`"}`)
				body := string(<-model.Bodies)
				require.NotContains(t, body, "base64")
				require.Contains(t, body, "[Image sent: photo]")
			}
			require.Equal(t, []string{"what is this?[Image sent: photo]", "A cat."}, texts(s.list(id, 10))[:2])
			require.NotContains(t, s.logs.String(), picture[30:60])
		})
	}
}

// An endpoint that speaks Responses gets the files of the request that it answers, and those under an id or an address
// always, also where it keeps nothing.
//
//conformance:o52
func TestFilesReachAModelBehindResponses(t *testing.T) {
	t.Parallel()
	model, s := behind(t, "responses", func([]string) modeltest.Answer { return modeltest.Answer{Text: "Seen."} })
	const (
		data  = `{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="}`
		file  = `{"type":"input_file","file_id":"file-1"}`
		image = `{"type":"input_image","file_id":"file-2","detail":"low"}`
		page  = `{"type":"input_file","file_url":"https://example.com/b.pdf"}`
	)
	id := s.begin()
	ask := func(input, where string) (first []byte) {
		s.must("POST", "/v1/responses", `{"input":[`+input+`]`+where+`}`)
		first, err := json.Marshal(messagesIn(t, <-model.Bodies)[0])
		require.NoError(t, err)
		return first
	}
	in := `,"conversation":"` + id + `"`
	text := func(text string) string { return `{"type":"input_text","text":"` + text + `"}` }
	sent := func(parts ...string) string {
		return `{"role":"user","content":[` + strings.Join(parts, ",") + `]}`
	}
	for _, where := range []string{`,"store":false`, in} {
		got := ask(sent(text("What is it?"), data, file, image, page), where)
		require.JSONEq(t, sent(text("What is it?"), data, file, image, page), string(got), where)
	}
	require.NotContains(t, s.do("GET", "/v1/sessions/"+id+"/turns", "").raw, "JVBERi0")
	got := ask(user("And?"), in)
	require.JSONEq(t, sent(text("What is it?"), text("[File sent: a.pdf]"), file,
		image, page), string(got))
}

// A model that speaks chat completions reads of a file that there was one.
//
//conformance:o52
func TestFilesAreTextsInChats(t *testing.T) {
	t.Parallel()
	for _, vendor := range []string{"chat", "anthropic"} {
		model, s := behind(t, vendor, func([]string) modeltest.Answer { return modeltest.Answer{Text: "Seen."} })
		id := s.begin()
		in := `,"conversation":"` + id + `"}`
		s.must("POST", "/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_text","text":"See."},
			{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="}]}]`+in)
		s.must("POST", "/v1/responses", `{"input":"And now?"`+in)
		for range 2 {
			body := string(<-model.Bodies)
			require.Equal(t, 1, strings.Count(body, "[File sent: a.pdf]"), body)
			require.NotContains(t, body, "Image sent")
			require.NotContains(t, body, "JVBERi0", vendor)
			require.NotContains(t, body, `"item"`, vendor)
		}
		for _, view := range []string{"/v1/conversations/" + id + "/items", "/v1/sessions/" + id + "/turns",
			"/v1/sessions/" + id + "/history"} {
			raw := s.do("GET", view, "").raw
			require.Contains(t, raw, "[File sent: a.pdf]", view)
			require.NotContains(t, raw, "Image sent", view)
		}
	}
}

// The model sees images that stand under an address, also those of earlier requests, since nothing of them is lost.
func TestImagesByAddressReachTheModel(t *testing.T) {
	t.Parallel()
	const address = "https://example.org/cat.png"
	model, s := behind(t, "chat", func([]string) modeltest.Answer { return modeltest.Answer{Text: "A cat."} })
	first := s.must("POST", "/v1/responses", `{"input":[{"role":"user","content":[
		{"type":"input_text","text":"what is this?"},{"type":"input_image","image_url":"`+address+`"}]}]}`)
	s.must("POST", "/v1/responses", `{"input":"and?","previous_response_id":"`+first["id"].(string)+`"}`)
	for range 2 {
		parts := messagesIn(t, <-model.Bodies)[0].(map[string]any)["content"].([]any)
		require.Len(t, parts, 2)
		image := parts[1].(map[string]any)
		require.Equal(t, "image_url", image["type"])
		require.Equal(t, address, image["image_url"].(map[string]any)["url"])
	}
}

// An image that a tool has made reaches the models that take one there; others get a text.
func TestImagesOfToolsReachTheModel(t *testing.T) {
	t.Parallel()
	for vendor := range vendors {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			model, s := behind(t, vendor, func(prompt []string) modeltest.Answer {
				if len(prompt) == 1 {
					return modeltest.Answer{Calls: []modeltest.Call{{ID: "c1", Name: "f", Arguments: "{}"}}}
				}
				return modeltest.Answer{Text: "A cat."}
			})
			const tools = `"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]`
			first := s.must("POST", "/v1/responses", `{"input":"draw",`+tools+`}`)
			<-model.Bodies
			s.must("POST", "/v1/responses", `{"input":[{"type":"function_call_output","call_id":"c1","output":
				[{"type":"input_image","image_url":"`+picture+`","detail":"low"}]}],"previous_response_id":"`+
				first["id"].(string)+`",`+tools+`}`)
			messages := messagesIn(t, <-model.Bodies)
			last := messages[len(messages)-1].(map[string]any)
			switch vendor {
			case "chat":
				require.Equal(t, []any{map[string]any{"type": "text", "text": "[Image sent: photo]"}}, last["content"])
			case "anthropic":
				result := last["content"].([]any)[0].(map[string]any)
				require.Equal(t, []any{imageParts[vendor]}, result["content"])
			case "responses":
				require.Equal(t, []any{imageParts[vendor]}, last["output"])
			}
		})
	}
}

// A model gets its own thoughts again in the steps of an answer with tools: Anthropic's with their signature, and those
// of an endpoint that speaks the Responses API with their encrypted content. Chat endpoints have no form for them.
//
//conformance:o72
func TestThoughtsAreReplayed(t *testing.T) {
	t.Parallel()
	for vendor := range vendors {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			model, s := behind(t, vendor, func(prompt []string) modeltest.Answer {
				if len(prompt) == 1 {
					return modeltest.Answer{Thoughts: "Let me look.",
						Calls: []modeltest.Call{{ID: "c1", Name: "f", Arguments: "{}"}}}
				}
				return modeltest.Answer{Text: "Done."}
			})
			const tools = `"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]`
			id := s.begin()
			first := s.must("POST", "/v1/responses", `{"input":"go","reasoning":{"effort":"low"},`+tools+
				`,"conversation":"`+id+`"}`)
			<-model.Bodies
			require.Equal(t, []string{"reasoning", "function_call"}, texts(first["output"].([]any)))
			second := s.must("POST", "/v1/responses", `{"input":[{"type":"function_call_output","call_id":"c1",
				"output":"found"}],"reasoning":{"effort":"low"},`+tools+`,"conversation":"`+id+`"}`)
			body := <-model.Bodies
			messages := messagesIn(t, body)
			switch vendor {
			case "chat":
				require.Len(t, messages, 3, "question, call and result")
				require.Equal(t, "Let me look.", messages[1].(map[string]any)["reasoning_content"])
			case "anthropic":
				require.Equal(t, []any{
					map[string]any{"type": "thinking", "thinking": "Let me look.", "signature": "signed"},
					map[string]any{"type": "tool_use", "id": "c1", "name": "f", "input": map[string]any{},
						"cache_control": map[string]any{"type": "ephemeral"}}, // the end of the history
				}, messages[1].(map[string]any)["content"])
			case "responses":
				thought := messages[1].(map[string]any)
				require.Equal(t, "reasoning", thought["type"])
				require.Equal(t, "sealed", thought["encrypted_content"])
			}
			// Without reasoning Anthropic's API gets no thoughts. Its thoughts are not shown unless asked for.
			s.must("POST", "/v1/responses", `{"input":"and?","previous_response_id":"`+second["id"].(string)+`"}`)
			body = <-model.Bodies
			require.NotContains(t, string(body), `"thinking"`)
			require.NotContains(t, string(body), "reasoning_content")
			require.NotContains(t, s.do("GET", "/v1/conversations/"+id+"/items", "").raw, "signed")
		})
	}
}
