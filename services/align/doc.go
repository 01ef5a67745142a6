// Package align answers one question: which of these items does a session have already, and what is new? It does no
// I/O.
package align
