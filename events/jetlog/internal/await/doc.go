// Package await holds the waits that many callers share: a barrier asks one question for all of them, a watermark wakes
// them when its sequence rises, and a durability gate makes events durable with one fsync for all.
package await
