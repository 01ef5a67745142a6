package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// drain bounds how much of a too large body is read and thrown away. It is read because a client reads the answer only
// after it has sent its body.
const drain = 16 << 20

// believed bounds the memory that a body gets by its length alone, before it has come.
const believed = 1 << 20

// ReadBody reads the body of a request. Its errors are *TooLarge for a body of more than most bytes, ErrOverloaded if
// reading it fails with that, and ErrBody.
func ReadBody(r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength <= most {
		buf := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), believed)+bytes.MinRead))
		switch _, err := io.Copy(buf, io.LimitReader(r.Body, most+1)); {
		case errors.Is(err, ErrOverloaded):
			return nil, err
		case err != nil:
			return nil, ErrBody
		}
		if int64(buf.Len()) <= most {
			return buf.Bytes(), nil
		}
	}
	if r.ContentLength <= most || r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, r.Body, drain) // errors don't matter
	}
	return nil, &TooLarge{most}
}

// WriteJSON answers with a value.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	if h := w.Header(); h["Content-Type"] == nil {
		h["Content-Type"] = asJSON
	}
	w.WriteHeader(status)
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	_ = out.Encode(v) // an error means that the client has gone
}

var asJSON = []string{"application/json"}
