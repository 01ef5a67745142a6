package v1

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/turnledger/turnledger/services/access"
)

// people adds the call that gives a person's data.
func (a *surface) people() {
	o := op("get-person", access.ContextRead, "GET /identities/{identity_id}/archive",
		"Get what is kept of a person, as a zip", notFound).takesLong()
	o.Responses = map[string]*huma.Response{"200": {Content: map[string]*huma.MediaType{zipped: {}}}}
	raw[anyAnswer](a, a.person, o)
}

const zipped = "application/zip"

type personIn struct {
	IdentityID id `path:"identity_id"`
}

// person answers with an archive. It has no deadline: it ends when the client goes.
func (a *surface) person(w http.ResponseWriter, r *http.Request, in *personIn) error {
	w.Header().Set("Content-Type", zipped)
	out := a.wire.NewPatient(w, nil)
	defer out.End()
	return a.cfg.People.Archive(r.Context(), in.IdentityID.text(), out)
}
