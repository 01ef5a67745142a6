// Package await holds waits that many callers share: a watermark wakes them when its sequence rises, and a durability
// gate makes events durable with one fsync for all.
package await
