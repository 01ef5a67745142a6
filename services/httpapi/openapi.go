package httpapi

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// bodied is an input with a body.
type bodied interface {
	fault() error
	bodyType() reflect.Type
	text(member string) string
}

// securityScheme is the name of the only one.
const securityScheme = "key"

// Keys of an operation's metadata: the type of its body, the names in it, whether
// it may be missing, the type of an answer that writes itself, whether the answer is
// a stream of events, the scopes that it needs, whether it bounds callers itself, and
// whether it may take long, and the type of a line of an answer that writes itself.
const (
	metaBody     = "body"
	metaMembers  = "members"
	metaOptional = "optional"
	metaAnswer   = "answer"
	metaStream   = "stream"
	metaScopes   = "scopes"
	metaBounds   = "bounds"
	metaLong     = "long"
	metaLines    = "lines"
)

// humaConfig is huma's without what costs or leaks: no $schema links, no other
// formats, no pages of its own.
func humaConfig(version string) huma.Config {
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	schemas.RegisterTypeAlias(reflect.TypeFor[huma.ErrorModel](), reflect.TypeFor[problem]())
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Turnledger", Version: version,
				Description: "Conversation history that LLM pipelines trust. Ids in paths are percent-encoded. Every error is a problem (RFC 9457) with a stable code.",
			},
			Components: &huma.Components{Schemas: schemas, SecuritySchemes: map[string]*huma.SecurityScheme{
				securityScheme: {Type: "http", Scheme: "bearer", Description: "A key of turnledger keys create. On loopback a server may run without."},
			}},
		},
		// "json" is what application/problem+json ends in.
		Formats:       map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat: "application/json",
	}
}

// schemaName gives Turn for turnJSON and StartBody for startBody.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if n := len(name) - len("JSON"); n > 0 && name[n:] == "JSON" {
		return name[:n]
	}
	return name
}

// documenter describes the bodies, which huma does not read itself.
type documenter struct{ huma.API }

var _ huma.OperationDocumenter = documenter{}

// DocumentOperation adds a call to the OpenAPI document.
func (d documenter) DocumentOperation(op *huma.Operation) {
	schemas := d.OpenAPI().Components.Schemas
	if t, ok := op.Metadata[metaBody].(reflect.Type); ok {
		op.RequestBody = &huma.RequestBody{Required: op.Metadata[metaOptional] == nil, Content: asJSON(schemas, t)}
	}
	if t, ok := op.Metadata[metaAnswer].(reflect.Type); ok {
		op.Responses["200"].Content = asJSON(schemas, t)
	}
	if t, ok := op.Metadata[metaLines].(reflect.Type); ok {
		op.Responses["200"].Content = map[string]*huma.MediaType{"application/x-ndjson": {Schema: schemas.Schema(t, true, "")}}
	}
	if op.Metadata[metaStream] != nil {
		text := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: "CloudEvents in JSON form"}}
		op.Responses["200"].Content = map[string]*huma.MediaType{"application/x-ndjson": text, "text/event-stream": text}
	}
	if op.DefaultStatus == http.StatusCreated {
		op.Responses["200"] = &huma.Response{Description: "The log had it already", Content: op.Responses["201"].Content}
	}
	d.OpenAPI().AddOperation(op)
}

func asJSON(schemas huma.Registry, t reflect.Type) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(t, true, "")}}
}

// operation is a call of CONTRACT §2 with the scopes that its callers need and the
// errors that it has of its own.
func operation(id string, needs Scopes, method, path, summary string, errors ...int) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: "/v1" + path, Summary: summary, SkipValidateParams: true,
		Metadata: map[string]any{metaScopes: needs},
		Security: []map[string][]string{{securityScheme: needs.Names()}},
		Errors:   append(errors, http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable),
	}
}

// with sets a key of an operation's metadata.
func with(op huma.Operation, key string, value any) huma.Operation {
	op.Metadata[key] = value
	return op
}
