package main

import (
	"fmt"
	"strings"
)

// table returns the measures, one row for each, and below them the counted places.
func (s Shape) table() string {
	var out strings.Builder
	row := func(name string, values ...any) {
		fmt.Fprintf(&out, "%-30s  %s", name, fmt.Sprintln(values...))
	}
	row("code, production", s.Code.Production)
	row("code, test support", s.Code.Support)
	row("code, tools and examples", s.Code.Tools)
	row("code, tests", s.Code.Tests)
	row("all lines", s.Lines.Production, "+", s.Lines.Support, "+", s.Lines.Tools, "+", s.Lines.Tests)
	row("packages", s.Packages)
	row("cmd/turnledger", s.Cmd.Code, "code,", s.Cmd.Lines, "lines,", s.Cmd.Files, "files")
	f := s.Functions
	row("functions", f.Count, "median", f.Median, "p90", f.P90, "max", f.Max, f.At)
	row("longest file", s.LongestFile.Value, s.LongestFile.At)
	row("widest line", s.WidestLine.Value, s.WidestLine.At)
	row("lines over 120 columns", s.WiderThan120)
	row("exported without a comment", len(s.NoComment))
	row("interfaces over seven methods", len(s.BigInterface))
	row("structs declared twice (pairs)", len(s.Twice))
	row("type assertions on views", len(s.Assertions))
	row("folders over twenty files", len(s.overTwenty()))
	s.details(&out)
	return out.String()
}

func (s Shape) overTwenty() []Place {
	for i, folder := range s.Folders {
		if folder.Value <= 20 {
			return s.Folders[:i]
		}
	}
	return s.Folders
}

func (s Shape) details(out *strings.Builder) {
	list := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(out, "\n%s:\n", title)
		}
		for _, line := range lines {
			fmt.Fprintln(out, " ", line)
		}
	}
	list("exported without a comment", s.NoComment)
	var big, full []string
	for _, p := range s.BigInterface {
		big = append(big, fmt.Sprintf("%s: %d", p.At, p.Value))
	}
	for _, p := range s.Folders[:min(10, len(s.Folders))] {
		full = append(full, fmt.Sprintf("%3d and %3d of tests  %s", p.Value, p.Tests, p.At))
	}
	list("interfaces over seven methods", big)
	list("structs declared twice", s.Twice)
	list("type assertions on views", s.Assertions)
	list("files in a folder, the ten fullest", full)
}
