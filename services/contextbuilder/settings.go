package contextbuilder

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
)

// Settings returns what a prompt was built with, as far as Request needs it to build the same again.
func (b *Builder) Settings(req services.ContextRequest, built *services.Context) services.PromptSettings {
	return services.PromptSettings{
		AsOf: built.Position, SystemPrompt: cmp.Or(req.SystemPrompt, b.cfg.SystemPrompt),
		MaxMessages: min(req.MaxMessages, services.MostMessages), MaxTokens: req.MaxTokens, MaxPrompt: req.MaxPrompt,
		Truncate: req.Truncate, IdleTimeout: b.idle(req), Blocks: b.blocks(req), Language: req.Language,
		IncludePending: req.IncludePending, Through: req.Through, Memory: req.Memory, Rewrite: req.Rewrite,
		Summary: req.Summary, Format: req.Format,
	}
}

// Request returns the request for a prompt of a turn as settings say, but for what a memory and a rewriter added, which
// nobody knows any more. Message is left out with Through.
func Request(s services.PromptSettings, sessionID string, turn uuid.UUID, message string) services.ContextRequest {
	req := services.ContextRequest{
		SessionID: sessionID, TurnID: turn, Message: message, Through: s.Through, SystemPrompt: s.SystemPrompt,
		MaxMessages: s.MaxMessages, MaxTokens: s.MaxTokens, MaxPrompt: s.MaxPrompt, Truncate: s.Truncate,
		IdleTimeout: &s.IdleTimeout, Blocks: &s.Blocks, Language: s.Language, IncludePending: s.IncludePending,
		Summary: s.Summary, Format: s.Format,
	}
	if s.Through {
		req.Message = ""
	}
	if !s.Truncate {
		req.MaxPrompt = 0 // it fitted
	}
	return req
}

// On returns a builder that reads from elsewhere, at another time, and takes the system prompt from requests alone.
func (b *Builder) On(r Sessions, now func() time.Time) *Builder {
	other := &Builder{reader: r, cfg: b.cfg}
	other.cfg.Now, other.cfg.SystemPrompt = now, ""
	return other
}

// Tokens counts those of a prompt.
func (b *Builder) Tokens(system string, list []json.RawMessage) int {
	all := message.ParseAll(list)
	if system != "" {
		all = append(all, message.New(message.System, system))
	}
	return tokensOf(all, b.cfg.Tokens.Count)
}

func (b *Builder) blocks(req services.ContextRequest) bool {
	if req.Blocks != nil {
		return *req.Blocks
	}
	return b.cfg.Blocks
}

// Digest returns the digest of a prompt under a key. It is the same for messages whose JSON means the same. Without a
// key it is "": what a prompt says could be guessed from a plain hash.
func Digest(key []byte, system string, list []json.RawMessage) string {
	parts := make([][]byte, 0, len(list)+1)
	parts = append(parts, []byte(system))
	for _, m := range list {
		canonical := jsontext.Value(append([]byte(nil), m...))
		if canonical.Canonicalize() != nil { // half a surrogate pair: as it came
			canonical = jsontext.Value(m)
		}
		parts = append(parts, canonical)
	}
	return Seal(key, parts)
}

// keyed is how many bytes of a digest name its key.
const keyed = 3

// Seal returns the digest of some parts under a key, which begins with what names the key; "" without one.
func Seal(key []byte, parts [][]byte) string {
	if len(key) == 0 {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		mac.Write(size[:])
		mac.Write(p)
	}
	return base64.RawURLEncoding.EncodeToString(append(nameOf(key), mac.Sum(nil)[:18]...))
}

// nameOf returns what names a key in digests.
func nameOf(key []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("the name of the key"))
	return mac.Sum(nil)[:keyed]
}

// Under reports whether a digest was made under a key.
func Under(key []byte, digest string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(digest)
	return err == nil && len(key) > 0 && len(raw) > keyed && hmac.Equal(raw[:keyed], nameOf(key))
}
