// Package house holds the rules of the house as tests: what no linter checks about the whole tree.
package house
