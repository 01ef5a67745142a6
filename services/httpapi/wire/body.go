package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

// drain bounds how much of a too large body is read and thrown away. It is read because a client reads the answer only
// after it has sent its body.
const drain = 16 << 20

// ReadBody reads the body of a request. Its errors are *TooLarge for a body of more than most bytes, and ErrBody.
func ReadBody(r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength <= most {
		buf := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 0)+bytes.MinRead))
		if _, err := io.Copy(buf, io.LimitReader(r.Body, most+1)); err != nil {
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
