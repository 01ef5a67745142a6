// Package ratelimit limits the rate of requests of sessions and identities. Its memory is bounded: it forgets the
// session or identity that has been quiet the longest, which then begins anew.
package ratelimit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Rate is a number of requests in a time; all of them may come at once. The zero Rate is no limit.
type Rate struct {
	Requests int
	Per      time.Duration
}

var errForm = errors.New("want requests per time such as 10/s, 60/m or 100/1h, or off")

// UnmarshalText reads "10/s", "60/m", "5/10s", a bare number (per second), or "off".
func (r *Rate) UnmarshalText(b []byte) error {
	text := string(b)
	if text == "" || text == "off" {
		*r = Rate{}
		return nil
	}
	count, per, given := strings.Cut(text, "/")
	if !given {
		per = "s"
	}
	if per != "" && (per[0] < '0' || per[0] > '9') {
		per = "1" + per
	}
	n, err := strconv.Atoi(count)
	d, err2 := time.ParseDuration(per)
	if err != nil || err2 != nil || n < 1 || d <= 0 {
		return errForm
	}
	*r = Rate{n, d}
	return nil
}

func (r Rate) String() string {
	if r.Requests == 0 {
		return "off"
	}
	return fmt.Sprintf("%d/%s", r.Requests, r.Per)
}

// most bounds how many sessions, and how many identities, are remembered: some 20 MB.
const most = 100_000

// Limiter limits the rate of requests. Safe for concurrent use.
type Limiter struct {
	sessions, identities *buckets
	now                  func() time.Time
}

// New makes a limiter, or returns nil if there is no rate to limit. now is the clock, time.Now by default.
func New(session, identity Rate, now func() time.Time) *Limiter {
	if session.Requests == 0 && identity.Requests == 0 {
		return nil
	}
	if now == nil {
		now = time.Now
	}
	return &Limiter{newBuckets(session), newBuckets(identity), now}
}

// ByIdentity reports whether identities have a rate.
func (l *Limiter) ByIdentity() bool { return l.identities != nil }

// Allow reports whether a request of a kind may proceed, and if not, after what time it may come again. Kinds are
// counted apart. An empty session or identity has no limit.
func (l *Limiter) Allow(kind, sessionID, identityID string) (wait time.Duration, ok bool) {
	now := l.now()
	session, identity := l.sessions.reserve(kind, sessionID, now), l.identities.reserve(kind, identityID, now)
	if wait = max(session.DelayFrom(now), identity.DelayFrom(now)); wait > 0 {
		// A refused request does not count.
		session.CancelAt(now)
		identity.CancelAt(now)
	}
	return wait, wait == 0
}

// buckets are the limiters of sessions or of identities; nil if these have no rate.
type buckets struct {
	rate     Rate
	limiters *lru.Cache[string, *rate.Limiter]
}

func newBuckets(r Rate) *buckets {
	if r.Requests == 0 {
		return nil
	}
	held, err := lru.New[string, *rate.Limiter](most)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &buckets{r, held}
}

// free has no limit.
var free = rate.NewLimiter(rate.Inf, 0)

func (b *buckets) reserve(kind, id string, now time.Time) *rate.Reservation {
	if b == nil || id == "" {
		return free.ReserveN(now, 1)
	}
	key := kind + "\x00" + id
	bucket, ok := b.limiters.Get(key)
	if !ok {
		bucket = rate.NewLimiter(rate.Limit(float64(b.rate.Requests)/b.rate.Per.Seconds()), b.rate.Requests)
		if there, held, _ := b.limiters.PeekOrAdd(key, bucket); held {
			bucket = there
		}
	}
	return bucket.ReserveN(now, 1)
}
