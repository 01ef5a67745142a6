package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/services"
)

// Found is something that a memory knows, the best first. TurnID says which turn it
// comes from and Place where that stands in its session, where they are known.
type Found struct {
	TurnID uuid.UUID
	Place  uint64
	Text   string
}

// Searcher finds what a scope knows about a query.
type Searcher interface {
	Search(ctx context.Context, scope Scoped, query string, limit int) ([]Found, error)
}

// Scoped is a scope with what it was made of.
type Scoped struct{ Name, IdentityID, SessionID string }

// Confirmed reports whether every deletion in a scope that was acknowledged before the call has reached the memory.
type Confirmed func(ctx context.Context, scope Scoped) (bool, error)

// Snippets implements services.Memory. Safe for concurrent use.
type Snippets struct {
	search    Searcher
	confirmed Confirmed
	budget    time.Duration
}

var _ services.Memory = (*Snippets)(nil)

// NewSnippets makes snippets of what search finds; budget is 300 ms where it is 0.
func NewSnippets(search Searcher, confirmed Confirmed, budget time.Duration) *Snippets {
	return &Snippets{search, confirmed, cmp.Or(budget, 300*time.Millisecond)}
}

// leavesOut reports whether a query wants nothing of what was found: the prompt shows it anyway, or it stands
// before the boundary of an anonymous session, where it may be another person's.
func leavesOut(q services.MemoryQuery, f Found) bool {
	return f.TurnID != uuid.Nil && slices.Contains(q.Shown, f.TurnID) || q.After > 0 && f.Place <= q.After
}

// results is how many memories a snippet is made of at most.
const results = 10

// Snippet returns what is known, or "" for nothing. An error says that the budget was not enough, or that the memory
// does not answer.
func (s *Snippets) Snippet(ctx context.Context, q services.MemoryQuery) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.budget)
	defer cancel()
	scope := Scoped{Scope(q.IdentityID, q.SessionID), q.IdentityID, q.SessionID}
	if err := s.free(ctx, scope); err != nil {
		return "", err
	}
	found, err := s.search.Search(ctx, scope, q.Message, results+len(q.Shown))
	if err != nil {
		return "", fmt.Errorf("search the memory: %w", err)
	}
	// A deletion may have come while the search was under way.
	if err := s.free(ctx, scope); err != nil {
		return "", err
	}
	found = slices.DeleteFunc(found, func(f Found) bool { return leavesOut(q, f) })
	return summarise(found), nil
}

func (s *Snippets) free(ctx context.Context, scope Scoped) error {
	ok, err := s.confirmed(ctx, scope)
	switch {
	case err != nil:
		return fmt.Errorf("look for deletions in the memory: %w", err)
	case !ok:
		return services.ErrWithheld
	default:
		return nil
	}
}

const (
	// longestSnippet leaves room for the heading within 2,000 characters.
	longestSnippet = 1980
	// longestFound is what one memory has room for.
	longestFound = 400
)

// summarise takes whole sentences of each memory, the first ones first, and none twice.
func summarise(found []Found) string {
	var lines []string
	said := map[string]bool{}
	room := longestSnippet
	for _, f := range found {
		var line []string
		left := min(longestFound, room-len("- \n"))
		for _, s := range sentences(f.Text) {
			n := utf8.RuneCountInString(s) + 1
			key := strings.ToLower(s)
			if n > left {
				break
			}
			if !said[key] {
				said[key] = true
				line = append(line, s)
				left -= n
			}
		}
		if len(line) == 0 {
			continue
		}
		text := "- " + strings.Join(line, " ")
		lines = append(lines, text)
		room -= utf8.RuneCountInString(text) + 1
	}
	return strings.Join(lines, "\n")
}

// sentences cuts a text after its full stops, and where lines end.
func sentences(text string) (out []string) {
	for line := range strings.Lines(text) {
		from := 0
		runes := []rune(strings.TrimSpace(line))
		for i, r := range runes {
			full := strings.ContainsRune("。！？｡।؟។။", r)
			full = full || i > 0 && r == ' ' && unicode.In(
				runes[i-1], unicode.Thai, unicode.Lao,
			) // which have no full stop
			stop := strings.ContainsRune(".!?…", r) && (i+1 == len(runes) || unicode.IsSpace(runes[i+1]))
			if full || stop || i+1 == len(runes) {
				if s := strings.TrimSpace(string(runes[from : i+1])); s != "" {
					out = append(out, s)
				}
				from = i + 1
			}
		}
	}
	return out
}

// Scope names what a memory is about: an identity, or an anonymous session. Storing and
// searching both ask here, so that they can't differ. Ids that a memory service would
// not take in a name (Supermemory: 100 of a-z, A-Z, 0-9, _, : and -) are hashed.
func Scope(identityID, sessionID string) string {
	if identityID != "" {
		return "user:" + scopeName(identityID)
	}
	return "thread:" + scopeName(sessionID)
}

// plainName matches ids that may stand in a name as they are. hashName matches ids that look like a hash: these are
// hashed too, since such an id could otherwise equal the hash of another one.
var (
	plainName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,80}$`)
	hashName  = regexp.MustCompile(`^sha256-[0-9a-f]{64}$`)
)

func scopeName(id string) string {
	if plainName.MatchString(id) && !hashName.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256-" + hex.EncodeToString(sum[:])
}
