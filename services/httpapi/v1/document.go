package v1

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// securityScheme is the name of the only security scheme.
const securityScheme = "key"

// newSpec makes the description of the API with huma, including the schemas of requests and responses. huma also adds
// routes to a mux, which is not served.
func newSpec(version string) huma.API { return humago.New(http.NewServeMux(), specOf(version)) }

// specOf returns huma's configuration, without $schema links and without huma's own pages.
func specOf(version string) huma.Config {
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	schemas.RegisterTypeAlias(reflect.TypeFor[huma.ErrorModel](), reflect.TypeFor[problem]())
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Turnledger", Version: version,
				Description: "Conversation history that LLM pipelines trust. Ids in paths are percent-encoded. " +
					"Every error is a problem (RFC 9457) with a stable code.",
			},
			Components: &huma.Components{Schemas: schemas, SecuritySchemes: map[string]*huma.SecurityScheme{
				securityScheme: {
					Type: "http", Scheme: "bearer",
					Description: "A key of turnledger keys create. On loopback a server may run without.",
				},
			}},
		},
		Formats:       map[string]huma.Format{"application/json": huma.DefaultJSONFormat},
		DefaultFormat: "application/json",
	}
}

// schemaName returns the name of a type's schema, for example Turn for turnJSON and StartBody for startBody.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if n := len(name) - len("JSON"); n > 0 && name[n:] == "JSON" {
		return name[:n]
	}
	return name
}

// contentOf describes an answer, or each line of it, as a T.
func contentOf[T any](a *surface, mediaType string) map[string]*huma.MediaType {
	schema := a.spec.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
	return map[string]*huma.MediaType{mediaType: {Schema: schema}}
}

//go:embed docs.html
var docsHTML string

// document serves the OpenAPI document, and a page made from it. Each is made when it is first asked for, and only from
// this package's types. So if it fails, it fails in a test. The page loads nothing from other sites.
func (a *surface) document() {
	spec := a.spec.OpenAPI()
	a.show("/openapi.json", func() ([]byte, error) { return json.Marshal(spec) },
		http.Header{"Content-Type": {"application/openapi+json"}})
	a.show("/docs", func() ([]byte, error) { return docsPage(spec) }, http.Header{
		"Content-Type": {"text/html; charset=utf-8"},
		"Content-Security-Policy": {
			"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; " +
				"frame-ancestors 'none'",
		},
	})
}

// show adds a public call that always answers with the same content, which is made once.
func (a *surface) show(path string, content func() ([]byte, error), header http.Header) {
	once := sync.OnceValues(content)
	a.routes = append(a.routes, wire.Route{
		Method: http.MethodGet, Path: path, Public: true,
		Handle: func(w http.ResponseWriter, _ *http.Request) error {
			made, err := once()
			if err != nil {
				return err
			}
			maps.Copy(w.Header(), header)
			_, _ = w.Write(made) // an error means that the client has gone
			return nil
		},
	})
}

// docsMember is a member of a body or an answer on the page.
type docsMember struct {
	Name, Type, Text string
	Required         bool
}

func docsPage(spec *huma.OpenAPI) ([]byte, error) {
	schemas := spec.Components.Schemas
	page, err := template.New("docs").Funcs(template.FuncMap{
		"members": func(content map[string]*huma.MediaType) []docsMember {
			if json := content["application/json"]; json != nil {
				return membersIn(schemas, json.Schema)
			}
			return nil
		},
	}).Parse(docsHTML)
	if err != nil {
		return nil, err
	}
	var calls []*huma.Operation
	for _, item := range spec.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op != nil {
				calls = append(calls, op)
			}
		}
	}
	slices.SortFunc(calls, func(a, b *huma.Operation) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
	var buf bytes.Buffer
	err = page.Execute(&buf, map[string]any{
		"Info": spec.Info, "Calls": calls, "Problem": membersIn(schemas, schemas.Map()["Problem"]),
	})
	return buf.Bytes(), err
}

// membersIn returns the members of an object, including those of the objects in its lists.
func membersIn(schemas huma.Registry, s *huma.Schema) []docsMember {
	if s != nil && s.Ref != "" {
		s = schemas.SchemaFromRef(s.Ref)
	}
	if s == nil {
		return nil
	}
	var out []docsMember
	for name, m := range s.Properties {
		out = append(out, docsMember{name, typeOf(m), m.Description, slices.Contains(s.Required, name)})
		if m.Type == huma.TypeArray && m.Items != nil && m.Items.Ref != "" {
			for _, inner := range membersIn(schemas, m.Items) {
				inner.Name = name + "[]." + inner.Name
				out = append(out, inner)
			}
		}
	}
	slices.SortFunc(out, func(a, b docsMember) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func typeOf(s *huma.Schema) string {
	t := s.Type
	switch {
	case t == "":
		t = "object"
	case s.Format != "":
		t = s.Format
	case len(s.Enum) > 0:
		t = strings.Trim(fmt.Sprint(s.Enum), "[]")
	}
	if s.Nullable {
		t += " or null"
	}
	return t
}
