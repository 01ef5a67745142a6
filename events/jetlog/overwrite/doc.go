// Package overwrite removes events from a log and from its mirrors, so that their texts are gone from every disk. The
// eraser decides which events, and in which order.
package overwrite
