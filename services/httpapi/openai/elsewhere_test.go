package openai_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/answer"
)

// clientsPath finds the first segment of a path that OpenAI's client asks for.
var clientsPath = regexp.MustCompile(`path := (?:fmt\.Sprintf\()?"([a-z_]+)`)

// clientsRoots returns the first segments of all paths that OpenAI's own client asks for.
func clientsRoots(t *testing.T) map[string]bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/openai/openai-go/v3").Output()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "*.go"))
	require.NoError(t, err)
	roots := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range clientsPath.FindAllStringSubmatch(string(text), -1) {
			roots[found[1]] = true
		}
	}
	delete(roots, "chat")    // the native API has it, too
	delete(roots, "threads") // of the Assistants API, which OpenAI has switched off; the native API has threads
	return roots
}

// Whatever a client of OpenAI's asks for is refused in the form that the client reads.
func TestPathsOfOpenAIThatAreNotHere(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	own := s.do("POST", "/v1/chat", `{}`)
	require.Equal(t, "application/problem+json", own.header.Get("Content-Type"), "the native API's errors stay its own")
	roots := clientsRoots(t)
	require.Greater(t, len(roots), 20)
	for root := range roots {
		for _, path := range []string{"/v1/" + root + "/some/thing/that/is/not/there", "/v1/" + root + "/-/-/-"} {
			a := s.do("POST", path, `{}`)
			require.Equal(t, http.StatusNotFound, a.status, "%s: %s", path, a.raw)
			require.Len(t, a.body, 1, path)
			e := a.body["error"].(map[string]any)
			require.Equal(t, "unknown_url", e["code"], path)
			require.Equal(t, "invalid_request_error", e["type"], path)
			require.Nil(t, e["param"], path)
			require.NotContains(t, e["message"], "thing", path)
			require.Equal(t, "false", a.header.Get("X-Should-Retry"), path)
		}
	}
	for path, says := range map[string][]string{
		"/v1/embeddings":               {"/v1/embeddings", "POST /v1/search"},
		"/v1/files":                    {"/v1/files", "file_data"},
		"/v1/vector_stores/vs/search":  {"/v1/vector_stores", "POST /v1/search"},
		"/v1/assistants":               {"/v1/assistants", "turnledger import --from assistants"},
		"/v1/chat/completions/a":       {"docs/openai.md"},
		"/v1/completions":              {"/v1/completions", "POST /v1/responses"},
		"/v1/batches":                  {"/v1/batches", "POST /v1/turns"},
		"/v1/organization/projects":    {"/v1/organization", "turnledger keys"},
		"/v1/moderations":              {"/v1/moderations", "endpoint"},
		"/v1/responses/resp_1/nothing": {"/v1/responses", "docs/openai.md"},
		"/v1/conversations/a/b/c/d":    {"/v1/conversations", "docs/openai.md"},
	} {
		a := s.do("POST", path, `{}`)
		for _, word := range says {
			require.Contains(t, a.body["error"].(map[string]any)["message"], word, path)
		}
	}
	client := s.client()
	_, err := client.Embeddings.New(t.Context(), sdk.EmbeddingNewParams{
		Input: sdk.EmbeddingNewParamsInputUnion{OfString: sdk.String("a")}, Model: "m",
	})
	var refused *sdk.Error
	require.ErrorAs(t, err, &refused)
	require.Contains(t, refused.Message, "no /v1/embeddings")

	native := s.do("GET", "/v1/nothing", "")
	require.Equal(t, "application/problem+json", native.header.Get("Content-Type"))
}
