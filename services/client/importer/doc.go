// Package importer records conversations from JSON Lines files (docs/contract.md#import) through a client of a running
// server. A line that can't be recorded is reported, and the rest goes in. An import that runs twice changes nothing.
package importer
