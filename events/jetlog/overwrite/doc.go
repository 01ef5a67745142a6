// Package overwrite takes events out of a log and out of its mirrors, so that their texts are gone from every disk.
// What must go, and in which order, is the eraser's business.
package overwrite
