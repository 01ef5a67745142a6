package openai

import (
	"maps"
	"net/http"
	"slices"

	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
)

// What to use in the place of some calls of OpenAI.
const (
	useProvider  = "send it to your model's own endpoint."
	useResponses = "send POST /v1/responses, which keeps the history."
	useInput     = "send a file with the input that needs it: an input_file with file_data or file_url."
	useEvents    = "GET /v1/events tells what happens."
	useKeys      = "turnledger keys makes, lists and revokes keys."
)

// elsewhere are the paths of OpenAI's that this surface does not answer, by their first segments, and what to use in
// their place. Clients read no other form of error there than OpenAI's.
var elsewhere = map[string]string{
	"/v1/agents": useProvider,
	"/v1/assistants": "turnledger import --from assistants makes conversations of its threads; then " +
		useResponses,
	"/v1/audio":                     useProvider,
	"/v1/batches":                   "POST /v1/turns records many turns at once; for a model's batches, " + useProvider,
	"/v1/chatkit":                   useProvider,
	"/v1/completions":               useResponses,
	"/v1/containers":                useProvider,
	"/v1/content_provenance_checks": useProvider,
	"/v1/decisions":                 useProvider,
	"/v1/embeddings":                "POST /v1/search finds turns by their meaning; for vectors, " + useProvider,
	"/v1/evals":                     useProvider,
	"/v1/files":                     useInput,
	"/v1/fine_tuning":               useProvider,
	"/v1/graders":                   useProvider,
	"/v1/images":                    useProvider,
	"/v1/live":                      useProvider,
	"/v1/moderations":               useProvider,
	"/v1/organization":              useKeys,
	"/v1/projects":                  useKeys,
	"/v1/realtime":                  useProvider,
	"/v1/skills":                    useProvider,
	"/v1/uploads":                   useInput,
	"/v1/vaults":                    useProvider,
	"/v1/vector_stores":             "POST /v1/search finds recorded turns; for files, " + useProvider,
	"/v1/videos":                    useProvider,
	"/v1/webhook_endpoints":         useEvents,
	"/v1/webhook_event_types":       useEvents,
}

// here are the first segments of the paths that this surface answers.
var here = []string{conversations, responses, models, completions}

// prefixes are all paths whose errors have OpenAI's form.
func prefixes() []string {
	return append(slices.Sorted(maps.Keys(elsewhere)), here...)
}

// noCall returns the problem for a path that there is not: it says what is missing, and what to use.
func noCall(r *http.Request) *problems.Problem {
	message := "There is no such call below /v1/conversations, /v1/responses, /v1/chat/completions and /v1/models: " +
		"docs/openai.md says what there is."
	for root, use := range elsewhere {
		if wire.Within(root, r.URL.EscapedPath()) {
			message = "Turnledger has no " + root + ": " + use
		}
	}
	return missing("", "unknown_url", message)
}
