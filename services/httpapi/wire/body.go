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

// ReadBody reads the body of a request, without its Content-Encoding. Its errors are *TooLarge for a body of more than
// most bytes, ErrPacked, ErrOverloaded if reading it fails with that, and ErrBody.
func ReadBody(r *http.Request, most int64) ([]byte, error) {
	if n := r.ContentLength; 0 <= n && n <= min(most, believed) {
		body := make([]byte, n) // net/http gives a body no more than its length
		if _, err := io.ReadFull(r.Body, body); err != nil {
			return nil, bodyError(err)
		}
		return body, nil
	}
	if r.ContentLength <= most {
		buf := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), believed)+bytes.MinRead))
		if _, err := io.Copy(buf, io.LimitReader(r.Body, most+1)); err != nil {
			return nil, bodyError(err)
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

// bodyError returns what ReadBody fails with.
func bodyError(err error) error {
	if errors.Is(err, ErrOverloaded) || errors.Is(err, ErrPacked) {
		return err
	}
	return ErrBody
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
