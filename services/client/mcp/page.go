package mcp

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// budget is how many tokens a result may have, as text and as structured content together. Agents cut results beyond
// 20,000 or 25,000 tokens of their own encodings, which count up to a third more than this one.
const budget = 13_000

// counter counts the tokens of a text.
type counter func(string) int

// cursor says where a result goes on: in a page of the API, with a record, behind some bytes of its texts.
type cursor struct {
	Page   string `json:"p,omitempty"`
	Record string `json:"r,omitempty"`
	From   int    `json:"f,omitempty"`
}

var (
	errCursor  = errors.New("cursor: must be the next_cursor of the result before, with the same arguments")
	errChanged = errors.New("what the cursor goes on with has changed since: ask again without a cursor")
)

func parseCursor(s string) (c cursor, err error) {
	if s == "" {
		return c, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || json.Unmarshal(raw, &c) != nil || c.From < 0 {
		return c, errCursor
	}
	return c, nil
}

func (c cursor) String() string {
	raw, _ := json.Marshal(c) // strings and a number
	return base64.RawURLEncoding.EncodeToString(raw)
}

// page is what the API answered: what it says of the whole, its records in the order in which they are shown, and the
// cursor of the next page.
type page struct {
	head    record
	records []record
	next    string
}

// result is the part of a page that fits.
type result struct {
	head  record
	shown []record
	// part of the only record that is shown, if it did not fit: from and to, of so many bytes.
	from, to, of int
	next         string
}

// cut returns as much of a page as fits, from the cursor's place on.
func (p page) cut(at cursor, count counter) (result, error) {
	names := namesOf(p.records)
	i := 0
	if at.Record != "" {
		if i = slices.Index(names, at.Record); i < 0 {
			return result{}, errChanged
		}
	}
	out := result{head: p.head}
	left := budget - count.cost(p.head)
	for ; i < len(p.records); i++ {
		r := p.records[i]
		if at.From > 0 {
			if at.From >= r.size() {
				return result{}, errChanged
			}
		} else if n := count.cost(r); n <= left {
			out.shown, left = append(out.shown, r), left-n
			continue
		}
		if len(out.shown) > 0 {
			break
		}
		out.from, out.of = at.From, r.size()
		out.to = count.end(r, out.from, left)
		out.shown = []record{r.part(out.from, out.to)}
		if out.to < out.of {
			out.next = cursor{at.Page, names[i], out.to}.String()
			return out, nil
		}
		i++
		break
	}
	switch {
	case i < len(p.records):
		out.next = cursor{at.Page, names[i], 0}.String()
	case p.next != "":
		out.next = cursor{Page: p.next}.String()
	}
	return out, nil
}

// end returns where the part of a record's texts ends that begins at from and fits.
func (c counter) end(r record, from, left int) int {
	to := min(r.size(), from+4*left)
	for {
		to = r.boundary(from, to)
		n := c.cost(r.part(from, to))
		if n <= left || to-from <= utf8.UTFMax {
			return to
		}
		to = from + max((to-from)*left/n*9/10, 1)
	}
}

// boundary returns the end of the character that to lies in, or before it.
func (r record) boundary(from, to int) int {
	begins := 0
	for _, v := range r.texts {
		if at := to - begins; 0 < at && at < len(v.says) {
			for at > 0 && !utf8.RuneStart(v.says[at]) && begins+at > from+1 {
				at--
			}
			return begins + at
		}
		begins += len(v.says)
	}
	return to
}

// cost returns how many tokens a record takes in a result: as text, and as structured content. It does not count all of
// what is far too long.
func (c counter) cost(r record) int {
	if n := r.size(); n > 10*budget {
		return n
	}
	var b strings.Builder
	r.markdown(&b)
	raw, _ := json.Marshal(map[string]any{"t": b.String(), "o": r.object()}) // JSON and strings
	return c(string(raw))
}

// namesOf names records by what they are. A record that changes is another; equal ones have numbers.
func namesOf(records []record) (names []string) {
	seen := map[string]int{}
	for _, r := range records {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q", []any{r.plain, r.texts}))
		name := base64.RawURLEncoding.EncodeToString(sum[:9])
		seen[name]++
		names = append(names, fmt.Sprint(name, ".", seen[name]))
	}
	return names
}
