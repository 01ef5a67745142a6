// Package house tests this repository for rules that no linter knows. Each rule is a test in a file of its own, and
// `make lint` runs them all.
//
// If the code breaks a rule in some places, the rule is a ratchet: ratchets.txt has the number of these places. The
// test fails when there are more, and names them. When there are fewer it asks for the lower number, so that the gain
// stays.
package house
