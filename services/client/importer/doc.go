// Package importer records conversations from JSON Lines files (docs/contract.md#import) through the client of a
// running server. It reports a line that can't be recorded, and continues with the next. Running an import twice
// changes nothing.
package importer
