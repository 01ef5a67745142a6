// Package house tests this repository for rules that no linter knows: imports point one way, switches have a case for
// each fact and kind, citations lead somewhere, tests that a page names exist, and a noun is declared once. Each rule
// is a test in a file of its own, and `make lint` runs them all.
package house
