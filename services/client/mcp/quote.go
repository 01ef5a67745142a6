package mcp

import (
	"regexp"
	"strings"
	"unicode"
)

// quoted returns a text between fences, which are longer than any fence in it. Links and images to elsewhere are none
// any more, also where a reader loses the fence.
func quoted(text string) string {
	text = linked.ReplaceAllString(text, `]\($1`)
	fence := strings.Repeat("`", max(3, longestRun(text)+1))
	return fence + "text\n" + text + "\n" + fence
}

// linked is what makes a link or an image of the words before it. What could also be code, such as f[T](x), is not.
var linked = regexp.MustCompile(`\]\((\s*<?(?:[a-zA-Z][a-zA-Z0-9+.-]*:|//|www\.))`)

// code returns a name in the middle of a line of Markdown, without what would end the line.
func code(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, name)
	tick := strings.Repeat("`", longestRun(name)+1)
	if len(tick) > 1 || strings.TrimSpace(name) != name {
		return tick + " " + name + " " + tick
	}
	return tick + name + tick
}

// longestRun returns the length of the longest run of backticks.
func longestRun(text string) (longest int) {
	run := 0
	for i := range len(text) {
		if text[i] != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}
