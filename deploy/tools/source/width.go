package source

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Columns returns the width of a line: a tab counts four columns, every other character one.
func Columns(line string) int {
	return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
}

// Wide is a line and its number of columns.
type Wide struct {
	Line    int // from 1
	Columns int
}

var (
	address    = regexp.MustCompile(`https?://[^\s)>"]+`)
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
)

// Wider returns the lines of more than limit columns that could be wrapped. Tables, links, code blocks, recorded data
// and struct tags are exempt. In Go, a text in backquotes is recorded data or a code block (JSON, SQL) if it stands on
// one line and has more than forty columns. If it takes several lines, each can be wrapped, unless it is JSON.
func (f File) Wider(limit int) []Wide {
	var wide []Wide
	exempt := f.exempt()
	for i, line := range strings.Split(string(f.Text), "\n") {
		columns := Columns(line)
		if columns <= limit || exempt[i+1] || isTable(line) {
			continue
		}
		if Columns(linkTarget.ReplaceAllString(address.ReplaceAllString(line, ""), "]")) <= limit {
			continue
		}
		wide = append(wide, Wide{Line: i + 1, Columns: columns})
	}
	return wide
}

func isTable(line string) bool {
	return strings.HasPrefix(strings.TrimLeft(line, "/# \t"), "|")
}

// isJSON reports whether a line of a text is recorded JSON.
func isJSON(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "{") || strings.HasPrefix(line, "[") || strings.HasPrefix(line, `"`)
}

func (f File) exempt() map[int]bool {
	if f.Syntax == nil {
		return f.fences()
	}
	exempt := map[int]bool{}
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if n.Tag != nil {
				exempt[f.Line(n.Tag.Pos())] = true
			}
		case *ast.BasicLit:
			first, last := f.Line(n.Pos()), f.Line(n.End())
			if n.Kind != token.STRING || n.Value[0] != '`' {
				break
			}
			if first == last {
				exempt[first] = exempt[first] || len(n.Value) > 40
				break
			}
			for i, line := range strings.Split(strings.Trim(n.Value, "`"), "\n") {
				exempt[first+i] = exempt[first+i] || isJSON(line)
			}
		}
		return true
	})
	return exempt
}

// fences returns the lines of a page that stand in code blocks.
func (f File) fences() map[int]bool {
	inside := map[int]bool{}
	if !strings.HasSuffix(f.Path, ".md") {
		return inside
	}
	open := false
	for i, line := range strings.Split(string(f.Text), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			open = !open
		}
		inside[i+1] = open
	}
	return inside
}
