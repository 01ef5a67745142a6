package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

// drain is how much of a body that is too large is read and thrown away: a client
// that is still sending sees the answer only if somebody reads.
const drain = 16 << 20

// ReadBody reads the body of a request, of at most so many bytes. Its errors are TooLarge and
// ErrBody.
func ReadBody(r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		if r.Header.Get("Expect") == "" {
			_, _ = io.CopyN(io.Discard, r.Body, drain) // as far as it goes
		}
		return nil, &TooLarge{most}
	}
	buf := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 0)+bytes.MinRead))
	_, err := io.Copy(buf, io.LimitReader(r.Body, most+1))
	switch {
	case err != nil:
		return nil, ErrBody
	case int64(buf.Len()) > most:
		_, _ = io.CopyN(io.Discard, r.Body, drain) // as far as it goes
		return nil, &TooLarge{most}
	}
	return buf.Bytes(), nil
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
