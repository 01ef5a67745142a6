package main

import (
	"bytes"
	"io"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnledger/turnledger/cmd/turnledger/cli"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/client/mcp"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	httpwire "github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
)

// callTime bounds a call, with the calls of the API that it makes.
const callTime = 2 * time.Minute

// mostBytes bounds a message.
const mostBytes = 4 << 20

// mountMCP adds /mcp to an API: the streamable HTTP of the protocol, without sessions. Each tool calls the API with the
// caller's own credentials, so that the API admits it as any other call.
func (a *app) mountMCP(api *httpwire.API) {
	if !a.roles.has(roleContext) {
		return
	}
	form := v1.Form()
	served := sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		of := mcp.Config{Version: version, Write: a.cfg.MCPWrite, Count: cli.AgentTokens}
		var err error
		own := client.Config{Transport: inside{api, r}, Tries: 1, Attempt: callTime}
		if of.Client, err = client.New(own); err != nil {
			return nil
		}
		return mcp.New(of)
	}, &sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true, PropagateRequestCancellation: true})
	form.Prefixes = []string{"/mcp"}
	form.Routes = []httpwire.Route{{
		Method: http.MethodPost, Path: "/mcp", Any: access.ContextRead | access.EventsRead | access.TurnsWrite,
		// Whom the tools let in is decided by the calls that they make.
		Admit: func(*http.Request) error { return nil }, Deadline: callTime, Long: callTime,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			body, err := httpwire.ReadBody(r, mostBytes)
			if err != nil {
				return err
			}
			// Earlier versions of the protocol know lists: thousands of calls at once, for one request's place.
			if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
				return problems.New(problems.CodeMalformed, "send one message a request")
			}
			ctx, cancel := api.UntilStopped(r.Context())
			defer cancel()
			r = r.WithContext(ctx)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			served.ServeHTTP(uncached{w}, r)
			return nil
		},
	}}
	api.Mount(form)
}

// uncached sends an answer that nobody may keep: the protocol's library would only have it checked again.
type uncached struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (u uncached) WriteHeader(status int) {
	u.Header().Set("Cache-Control", "no-store")
	u.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (u uncached) Write(b []byte) (int, error) {
	u.Header().Set("Cache-Control", "no-store") // counts only before the header was sent
	return u.ResponseWriter.Write(b)
}

// Unwrap makes http.ResponseController work.
func (u uncached) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// inside sends requests to a handler of this process, as the caller of another request.
type inside struct {
	to http.Handler
	of *http.Request
}

// RoundTrip implements http.RoundTripper.
func (i inside) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host, r.RemoteAddr, r.TLS = i.of.Host, i.of.RemoteAddr, i.of.TLS
	if key := i.of.Header["Authorization"]; key != nil {
		r.Header["Authorization"] = key
	}
	w := &inner{header: http.Header{}, status: http.StatusOK}
	i.to.ServeHTTP(w, r)
	return &http.Response{
		StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// inner is what the handler answers.
type inner struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *inner) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *inner) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *inner) Write(b []byte) (int, error) { return a.body.Write(b) }
