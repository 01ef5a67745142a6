// Package house holds this repository to rules that no linter knows. Each rule is a test in a file of its own,
// and `make lint` runs them all.
//
// A rule that the tree does not keep everywhere yet is a ratchet: ratchets.txt has the number of places that
// still break it. The test fails when there are more, and names them. When there are fewer it asks for the
// lower number, so that what was won stays won.
package house
