package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

// drain is how much of a body that is too large is read and thrown away. A client
// reads the answer only when it has sent its body.
const drain = 16 << 20

// ReadBody reads the body of a request. Its errors are *TooLarge, where the body has more than most bytes, and
// ErrBody.
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
		_, _ = io.CopyN(io.Discard, r.Body, drain) // as far as it goes
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
	_ = out.Encode(v) // the client is gone, then
}

var asJSON = []string{"application/json"}
