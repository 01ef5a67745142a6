package recall

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

// Found is a search result. TurnID is the turn that it comes from, and Place the turn's place in its session, if they
// are known.
type Found struct {
	TurnID uuid.UUID
	Place  uint64
	Text   string
}

// Searcher searches a scope, and returns the best results first.
type Searcher interface {
	Search(ctx context.Context, scope Scoped, query string, limit int) ([]Found, error)
}

// Scoped is a scope with the ids that its name was made from.
type Scoped struct{ Name, IdentityID, SessionID string }

// Confirmed reports whether every deletion in a scope that was acknowledged before the call has reached the memory.
type Confirmed func(ctx context.Context, scope Scoped) (bool, error)

// Snippets implements services.Memory. Safe for concurrent use.
type Snippets struct {
	erasures projections.ErasureCheck
	search   Searcher
	// meaning is nil where no index is configured.
	meaning   Searcher
	confirmed Confirmed
	budget    time.Duration
}

var _ services.Memory = (*Snippets)(nil)

// NewSnippets makes snippets from the results of search, if confirmed lets them through: nil where each search looks up
// what is true now, so that nothing waits. budget is 300 ms if it is 0.
func NewSnippets(check projections.ErasureCheck, search Searcher, confirmed Confirmed, budget time.Duration) *Snippets {
	return &Snippets{erasures: check, search: search, confirmed: confirmed,
		budget: cmp.Or(budget, 300*time.Millisecond)}
}

// WithMeaning makes the snippets search by meaning as well.
func (s *Snippets) WithMeaning(meaning Searcher) *Snippets {
	s.meaning = meaning
	return s
}

// leavesOut reports whether a snippet must leave a result out: the prompt shows its turn anyway, or the turn stands
// before the boundary of an anonymous session and may be another person's.
func leavesOut(q services.MemoryQuery, f Found) bool {
	return f.TurnID != uuid.Nil && slices.Contains(q.Shown, f.TurnID) || q.After > 0 && f.Place <= q.After
}

// results bounds how many results a snippet is made of.
const results = 10

// Snippet implements services.Memory. An error means that the budget was too short, or that the memory does not answer.
func (s *Snippets) Snippet(ctx context.Context, q services.MemoryQuery) (out services.MemorySnippet, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.budget)
	defer cancel()
	scope := Scoped{Scope(q.IdentityID, q.SessionID), q.IdentityID, q.SessionID}
	if err := s.free(ctx, scope); err != nil {
		return out, err
	}
	found, err := projections.Unerased(ctx, s.erasures, q.IdentityID, func() ([]Found, error) {
		found, failed, err := s.find(ctx, scope, q.Message, results+len(q.Shown))
		out.ByWords, out.OtherModel = failed != nil, errors.Is(failed, projections.ErrOtherModel)
		return found, err
	})
	if err != nil {
		return services.MemorySnippet{}, fmt.Errorf("search the memory: %w", err)
	}
	// A deletion may have come during the search.
	if err := s.free(ctx, scope); err != nil {
		return services.MemorySnippet{}, err
	}
	found = slices.DeleteFunc(found, func(f Found) bool { return leavesOut(q, f) })
	out.Text = summarise(found)
	return out, nil
}

// find searches by words and by meaning at the same time, and fuses what they find by rank. The search by meaning has
// two thirds of what is left of the budget, so that a prompt has what the words have found where it does not answer;
// failed says why then.
func (s *Snippets) find(
	ctx context.Context, scope Scoped, message string, limit int,
) (found []Found, failed, err error) {
	if s.meaning == nil {
		found, err = s.search.Search(ctx, scope, message, limit)
		return found, nil, err
	}
	var near []Found
	var asking sync.WaitGroup
	asking.Go(func() {
		end, _ := ctx.Deadline() // Snippet has set it
		ctx, cancel := context.WithTimeout(ctx, time.Until(end)*2/3)
		defer cancel()
		near, failed = s.meaning.Search(ctx, scope, message, limit)
	})
	found, err = s.search.Search(ctx, scope, message, limit)
	asking.Wait()
	if err != nil || failed != nil {
		return found, failed, err
	}
	return fuse(found, near), nil, nil
}

func (s *Snippets) free(ctx context.Context, scope Scoped) error {
	if s.confirmed == nil {
		return nil
	}
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
	// longestSnippet bounds a snippet, so that it fits into 2,000 characters with its heading.
	longestSnippet = 1980
	// longestFound bounds the text of one result.
	longestFound = 400
)

// summarise takes whole sentences of each result, the first ones first, and none twice.
func summarise(found []Found) string {
	var lines []string
	shown := map[string]bool{}
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
			if !shown[key] {
				shown[key] = true
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

// sentences splits a text after full stops and at line ends.
func sentences(text string) (out []string) {
	for line := range strings.Lines(text) {
		from := 0
		runes := []rune(strings.TrimSpace(line))
		for i, r := range runes {
			full := strings.ContainsRune("。！？｡।؟។။", r)
			full = full || i > 0 && r == ' ' && unicode.In(
				runes[i-1], unicode.Thai, unicode.Lao,
			) // a line may have no full stop
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

// Scope returns the name of a memory's scope: an identity, or an anonymous session. Storing and searching both use it,
// so they can't differ. Ids that a memory service would refuse in a name (Supermemory allows 100 of a-z, A-Z, 0-9, _, :
// and -) are hashed.
func Scope(identityID, sessionID string) string {
	if identityID != "" {
		return IdentityScope(identityID)
	}
	return AnonymousScope(sessionID)
}

// IdentityScope is the Scope of an identity.
func IdentityScope(identityID string) string { return "user:" + scopeName(identityID) }

// AnonymousScope is the Scope of a session while it is linked to no identity.
func AnonymousScope(sessionID string) string { return "thread:" + scopeName(sessionID) }

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
