// Package overwrite takes events out of a log and out of its mirrors, so that their texts are gone from every disk. The
// eraser decides which events go, and in which order.
package overwrite
