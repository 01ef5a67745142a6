package house_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What cites a page leads to it: the page is in the repository, and has the heading or anchor that is named. A
// file or folder that a page names in backquotes exists.
// Sections are cited by anchor ("docs/contract.md#errors"), never by number, since numbers move.
func TestCitationsLeadSomewhere(t *testing.T) {
	pages := map[string]map[string]bool{}
	for _, f := range repository(t) {
		if strings.HasSuffix(f.Path, ".md") {
			pages[f.Path] = anchors(string(f.Text))
		}
	}
	var findings []string
	for _, f := range repository(t) {
		if !strings.HasPrefix(f.Path, "deploy/e2e/house/") { // its tests cite what is not there
			findings = append(findings, deadCitations(f, pages)...)
		}
	}
	require.Empty(t, findings)
}

var (
	cited  = regexp.MustCompile(`\bdocs/([\w./-]+\.md)(?:#([\w-]+))?`)
	linked = regexp.MustCompile(`\]\(([^)\s:#]*)(?:#([\w-]+))?\)`)
	named  = regexp.MustCompile("`((?:events|projections|services|cmd|deploy|docs)/" +
		"[\\w./-]*?[\\w/])(?:\\.[A-Z]\\w*)?[`:]")
	numbered = regexp.MustCompile(`\b(CONTRACT|DESIGN)\b|\b(HOUSE|STYLE|OPENAI|NATS|PEERS)(\.md)? ?§`)
)

func deadCitations(f textFile, pages map[string]map[string]bool) (findings []string) {
	for i, line := range strings.Split(string(f.Text), "\n") {
		complain := func(what, why string) {
			findings = append(findings, fmt.Sprintf("%s:%d %s: %s", f.Path, i+1, what, why))
		}
		for _, m := range numbered.FindAllString(line, -1) {
			complain(m, "cite an anchor of docs/contract.md or docs/design.md")
		}
		links := linked.FindAllStringSubmatch(line, -1)
		if !strings.HasSuffix(f.Path, ".md") {
			links = nil
		} else {
			line = linked.ReplaceAllString(line, "]")
		}
		for _, m := range cited.FindAllStringSubmatch(line, -1) {
			if why := dead("docs/"+m[1], m[2], pages); why != "" {
				complain(m[0], why)
			}
		}
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil && strings.HasSuffix(f.Path, ".md") {
				complain(m[1], "no such file or folder")
			}
		}
		for _, m := range links {
			target := f.Path
			if m[1] != "" {
				target = path.Join(f.Dir(), m[1])
			}
			if why := dead(target, m[2], pages); why != "" {
				complain(m[0], why)
			}
		}
	}
	return findings
}

func dead(target, anchor string, pages map[string]map[string]bool) string {
	known, isPage := pages[target]
	if !isPage {
		if _, err := os.Stat(filepath.Join(root, target)); err != nil {
			return "no such file"
		}
		return ""
	}
	if anchor != "" && !known[anchor] {
		return "no such heading"
	}
	return ""
}

var (
	heading  = regexp.MustCompile(`^#+ +(.*)$`)
	explicit = regexp.MustCompile(`<a (?:id|name)="([^"]+)">`)
	dropped  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the anchors of a page as GitHub makes them of its headings, and those that it sets itself.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	fenced := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if fenced {
			continue
		}
		for _, m := range explicit.FindAllStringSubmatch(line, -1) {
			found[m[1]] = true
		}
		if m := heading.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			slug := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
			for n, free := 1, slug; ; n++ {
				if !found[free] {
					found[free] = true
					break
				}
				free = fmt.Sprintf("%s-%d", slug, n)
			}
		}
	}
	return found
}

func TestDeadCitationsAreFound(t *testing.T) {
	pages := map[string]map[string]bool{
		"docs/a.md": anchors("# A page\n## `PUT` of it, twice\n## Twice\n## Twice\n" +
			"<a id=\"own\"></a>\n```\n# no heading\n```\n"),
	}
	find := func(name, text string) []string {
		f, err := parse(nil, name, []byte(text))
		require.NoError(t, err)
		return deadCitations(f, pages)
	}
	good := "docs/a.md#a-page docs/a.md#put-of-it-twice docs/a.md#twice-1 docs/a.md#own docs/a.md."
	require.Empty(t, find("a.go", "package a // "+good+"\n"))
	require.Empty(t, find("docs/b.md", "[x](a.md#own) [y](https://example.org/z#q) [z](../README.md)\n"))
	require.Equal(t, []string{
		"a.go:1 docs/a.md#no-heading: no such heading",
		"a.go:2 docs/none.md: no such file",
	}, find("a.go", "package a // docs/a.md#no-heading\n// docs/none.md\n"))
	require.Equal(t, []string{
		"docs/b.md:1 ](a.md#gone): no such heading",
		"docs/b.md:1 ](c.md): no such file",
	}, find("docs/b.md", "[x](a.md#gone) [y](c.md)\n"))
	there := "`docs/decisions.md` `services/eraser.Documents`"
	require.Len(t, find("docs/b.md", "`events/none.go` `services/none.Name` "+there+"\n"), 2)
	require.Len(t, find("a.go", "package a // CONTRACT §2, DESIGN.md §3\n"), 2)
}
