// Package lexicon asks PostgreSQL for the lexemes of words.
package lexicon

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/turnledger/turnledger/projections/audit/words"
)

// Simple is the text search configuration by which each word is found as it is.
const Simple = "simple"

// Lexicon returns the lexemes of words by a text search configuration, and keeps those that it has asked for. Safe for
// concurrent use.
type Lexicon struct {
	config string
	mu     sync.Mutex
	kept   words.Lexemes
}

// New makes a lexicon; it does no I/O.
func New(config string) *Lexicon { return &Lexicon{config: config, kept: words.Lexemes{}} }

// Simple reports whether words need no lexemes.
func (l *Lexicon) Simple() bool { return l.config == Simple }

// mostKept bounds the words whose lexemes are kept.
const mostKept = 100_000

// Queries is a connection to PostgreSQL, or a transaction.
type Queries interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Of returns the lexemes of the words of some texts, and nil where words need none.
func (l *Lexicon) Of(ctx context.Context, q Queries, texts ...string) (words.Lexemes, error) {
	if l.Simple() {
		return nil, nil //nolint:nilnil // no lexemes are those of the configuration simple
	}
	out, unknown := l.known(words.Of(texts...))
	if len(unknown) == 0 {
		return out, nil
	}
	found, _ := q.Query(ctx, `select word, tsvector_to_array(to_tsvector($1::text::regconfig, word))
		from unnest($2::text[]) as word`, l.config, unknown)
	var word string
	var forms []string
	_, err := pgx.ForEachRow(found, []any{&word, &forms}, func() error {
		out[word] = slices.Clone(forms)
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept)+len(unknown) > mostKept {
		clear(l.kept)
	}
	for _, w := range unknown {
		l.kept[w] = out[w]
	}
	return out, nil
}

// known returns the lexemes that are kept, and the other words.
func (l *Lexicon) known(all []string) (out words.Lexemes, unknown []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out = make(words.Lexemes, len(all))
	for _, w := range all {
		forms, known := l.kept[w]
		if out[w] = forms; !known {
			unknown = append(unknown, w)
		}
	}
	return out, unknown
}
