package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"
)

// How long a sign-in lasts: at most longest, and idle without a request.
const (
	longest = 12 * time.Hour
	idle    = time.Hour
)

// pass is what a cookie holds: the caller's key, and when it was shown and last used.
type pass struct {
	Key  string    `json:"key"`
	From time.Time `json:"from"`
	Used time.Time `json:"used"`
}

// valid reports whether a pass still counts at a time.
func (p pass) valid(now time.Time) bool {
	return now.Sub(p.From) < longest && now.Sub(p.Used) < idle && !p.Used.After(now.Add(idle))
}

// seal encrypts cookies, so that nobody else can read or make them.
type seal struct{ aead cipher.AEAD }

// purpose is authenticated with each cookie, so that one kind is not taken for another.
type purpose string

const (
	cookiePurpose purpose = "turnledger console cookie 1"
	loginPurpose  purpose = "turnledger console sign-in 1"
)

func newSeal(key []byte) seal {
	if len(key) == 0 {
		key = []byte(rand.Text())
	}
	sum := sha256.Sum256(key)
	block, err := aes.NewCipher(sum[:])
	if err == nil {
		var aead cipher.AEAD
		if aead, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return seal{aead}
		}
	}
	panic(err) // never happens: the key has the length of an AES key
}

func (s seal) close(of purpose, v any) string {
	plain, _ := json.Marshal(v)                        // what cookies hold always encodes
	sealed := s.aead.Seal(nil, nil, plain, []byte(of)) //nolint:gosec // the AEAD draws the nonce itself
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// open reads a cookie that this deployment has sealed.
func (s seal) open(of purpose, cookie string, v any) bool {
	raw, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil || s.aead == nil {
		return false
	}
	plain, err := s.aead.Open(nil, nil, raw, []byte(of))
	return err == nil && json.Unmarshal(plain, v) == nil
}
