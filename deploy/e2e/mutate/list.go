package main

import (
	"fmt"
	"strconv"
	"strings"
)

// mutation is a small fault of the product.
type mutation struct {
	Number int
	Kind   string
	File   string // relative to the checkout
	Func   string // Name, or (*Type).Name
	// Nth tells apart statements of the function that have the same text, from 1.
	Nth int
	// Before is the text of a statement, up to its body if it has one; After replaces it. Lines are trimmed.
	Before, After []string
}

// String is the form of a list.
func (m *mutation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s\nfile %s\nfunc %s\n", m.Number, m.Kind, m.File, m.Func)
	if m.Nth > 1 {
		fmt.Fprintf(&b, "nth %d\n", m.Nth)
	}
	for _, line := range m.Before {
		b.WriteString("- " + line + "\n")
	}
	for _, line := range m.After {
		b.WriteString("+ " + line + "\n")
	}
	return b.String()
}

// parse reads a list: mutations with blank lines between them, and comments that begin with #.
func parse(text string) (out []mutation, err error) {
	for block := range strings.SplitSeq(text, "\n\n") {
		m := mutation{Nth: 1}
		for line := range strings.Lines(block) {
			if line = strings.TrimSuffix(line, "\n"); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if err := m.read(line); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
		}
		if m.Number == 0 {
			continue
		}
		out = append(out, m)
	}
	return out, nil
}

func (m *mutation) read(line string) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "file":
		m.File = rest
	case "func":
		m.Func = rest
	case "nth":
		m.Nth, err = strconv.Atoi(rest)
	case "-":
		m.Before = append(m.Before, rest)
	case "+":
		m.After = append(m.After, rest)
	default:
		m.Number, err = strconv.Atoi(word)
		m.Kind = rest
	}
	return err
}

// lines are the trimmed lines of a text.
func lines(text string) (out []string) {
	for line := range strings.SplitSeq(text, "\n") {
		out = append(out, strings.TrimSpace(line))
	}
	return out
}
