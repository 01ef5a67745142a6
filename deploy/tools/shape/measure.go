package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/deploy/tools/source"
)

// Shape holds the measures. "Production" leaves out test support, tests, tools and examples.
type Shape struct {
	Code         Amounts  `json:"code"`         // lines that hold more than a comment
	Lines        Amounts  `json:"lines"`        // all lines
	Packages     int      `json:"packages"`     // of production
	Cmd          Amount   `json:"cmd"`          // cmd/turnledger with its subpackages, systemtest apart; no tests
	Functions    Spread   `json:"functions"`    // lines of a function in production and support, with its signature
	LongestFile  Place    `json:"longest_file"` // of production and its support
	WidestLine   Place    `json:"widest_line"`  // of all Go files, tabs as four columns, exceptions left out
	WiderThan120 int      `json:"wider_than_120"`
	NoComment    []string `json:"no_comment"`    // exported names of production without a doc comment
	BigInterface []Place  `json:"big_interface"` // interfaces of more than seven methods
	Folders      []Place  `json:"folders"`       // Go files in a folder, the fullest first
	Twice        []string `json:"twice"`         // exported structs that share four or more fields across packages
	Assertions   []string `json:"assertions"`    // type assertions on views, in cmd and projections
}

// Amounts holds a count for each class of files.
type Amounts struct {
	Production int `json:"production"`
	Support    int `json:"support"`
	Tools      int `json:"tools"`
	Tests      int `json:"tests"`
}

// Amount is the size of one part.
type Amount struct {
	Code  int `json:"code"`
	Lines int `json:"lines"`
	Files int `json:"files"`
}

// Spread is a distribution.
type Spread struct {
	Count  int    `json:"count"`
	Median int    `json:"median"`
	P90    int    `json:"p90"`
	Max    int    `json:"max"`
	At     string `json:"at"` // place of the longest
}

// Place is a number and the place that it belongs to.
type Place struct {
	At    string `json:"at"`
	Value int    `json:"value"`
	Tests int    `json:"tests,omitempty"`
}

func measure(files []source.File) Shape {
	files = slices.DeleteFunc(files, func(f source.File) bool { return f.Syntax == nil })
	var s Shape
	packages := map[string]bool{}
	for _, f := range files {
		s.count(f)
		s.wide(f)
		if f.Class() == source.Production {
			packages[f.Dir()] = true
		}
	}
	s.Packages = len(packages)
	s.Functions = functions(files)
	s.Folders = folders(files)
	production := slices.DeleteFunc(files, func(f source.File) bool { return f.Class() != source.Production })
	s.NoComment = uncommented(production)
	s.BigInterface = interfaces(production)
	s.Twice = twins(production)
	s.Assertions = assertions(production)
	return s
}

func (s *Shape) count(f source.File) {
	code, lines := codeLines(f), strings.Count(string(f.Text), "\n")
	s.Code.add(f.Class(), code)
	s.Lines.add(f.Class(), lines)
	of := f.Class()
	if of == source.Production && strings.HasPrefix(f.Path, "cmd/turnledger/") {
		s.Cmd.Code += code
		s.Cmd.Lines += lines
		s.Cmd.Files++
	}
	if (of == source.Production || of == source.Support) && lines > s.LongestFile.Value {
		s.LongestFile = Place{At: f.Path, Value: lines}
	}
}

func (s *Shape) wide(f source.File) {
	for _, w := range f.Wider(120) {
		s.WiderThan120++
		if w.Columns > s.WidestLine.Value {
			s.WidestLine = Place{At: fmt.Sprintf("%s:%d", f.Path, w.Line), Value: w.Columns}
		}
	}
}

func (a *Amounts) add(class source.Class, n int) {
	switch class {
	case source.Production:
		a.Production += n
	case source.Support:
		a.Support += n
	case source.Tool:
		a.Tools += n
	case source.Test:
		a.Tests += n
	}
}

// codeLines returns the number of lines that hold any code.
func codeLines(f source.File) int {
	var scan scanner.Scanner
	fset := token.NewFileSet()
	file := fset.AddFile(f.Path, -1, len(f.Text))
	scan.Init(file, f.Text, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, lit := scan.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && lit == "\n" { // inserted by the scanner
			continue
		}
		first := file.Line(pos)
		for line := first; line <= first+strings.Count(lit, "\n"); line++ {
			lines[line] = true
		}
	}
}

func functions(files []source.File) Spread {
	var sizes []Place
	for _, f := range files {
		if f.Class() != source.Production && f.Class() != source.Support {
			continue
		}
		for _, decl := range f.Syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
				at := fmt.Sprintf("%s:%d %s", f.Path, f.Line(fn.Pos()), fn.Name.Name)
				sizes = append(sizes, Place{At: at, Value: f.Line(fn.End()) - f.Line(fn.Pos()) + 1})
			}
		}
	}
	if len(sizes) == 0 {
		return Spread{}
	}
	slices.SortStableFunc(sizes, func(a, b Place) int { return cmp.Compare(a.Value, b.Value) })
	n := len(sizes)
	last := sizes[n-1]
	return Spread{Count: n, Median: sizes[n/2].Value, P90: sizes[n*9/10].Value, Max: last.Value, At: last.At}
}

func folders(files []source.File) []Place {
	counts := map[string]*Place{}
	for _, f := range files {
		if counts[f.Dir()] == nil {
			counts[f.Dir()] = &Place{At: f.Dir()}
		}
		if f.Class() == source.Test {
			counts[f.Dir()].Tests++
		} else {
			counts[f.Dir()].Value++
		}
	}
	var all []Place
	for _, p := range counts {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b Place) int { return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.At, b.At)) })
	return all
}
