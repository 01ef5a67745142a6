package recenttest

import "testing"

// Run tests a backend by the contract of recent.Reader, with its dead letters.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Open)
	}{
		{"an unknown session is not held", unknown},
		{"the window is the newest finalized turns and what is pending among them", window},
		{"redacted and replaced turns leave at once", leave},
		{"a redaction covers all versions", chain},
		{"a redaction whose turn is gone from the log", restored},
		{"the cap holds on every append", capped},
		{"a session expires after its last activity", expiry},
		{"what has expired does not come back by applying it again", notProlonged},
		{"linked sessions keep their turns", linked},
		{"reset and silence move the boundary", boundary},
		{"an erased session leaves a closed head", erased},
		{"contradictions change nothing", anomalies},
		{"texts and JSON come back byte for byte", exact},
		{"any prefix may come again", deliveredAgain},
		{"a rival fences", fenced},
		{"a crash between batches loses nothing", crash},
		{"a view that begins later knows what it lacks", begunLater},
		{"a parked event leaves its session to the log", parked},
		{"a retried dead letter brings the session back from the log", retried},
		{"a dropped dead letter keeps who and why", dropped},
		{"a retry that the view overtakes is not taken", overtaken},
		{"waiting ends at the position or with the ctx", waiting},
		{"a snapshot is the caller's own", ownCopy},
		{"reads beside writes are consistent", concurrent},
		{"random logs, delivered at random", randomly},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open)
		})
	}
}
