package modeltest

import (
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Scripted is a model whose answer follows from the prompt. It answers a question about children rightly only if the
// history names Donald Trump. If the last message says "fail", "slowly", "broken" or "at length", it answers in that
// way.
type Scripted struct {
	*Server
	mu sync.Mutex
	// held, if set, keeps an answer to "slowly" back after its first word until it is closed.
	held chan struct{}
}

// NewScripted starts a model that ends with the test.
func NewScripted(t testing.TB) *Scripted {
	s := &Scripted{}
	s.Server = New(t, s.answer)
	return s
}

// Hold makes answers to "slowly" wait from now on, until release is called.
func (s *Scripted) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return func() { close(held) }
}

func (s *Scripted) answer(prompt []string) (a Answer) {
	last, earlier := prompt[len(prompt)-1], strings.Join(prompt[:len(prompt)-1], "\n")
	a.Text = "Donald Trump is an American politician."
	switch {
	case strings.Contains(last, "children") && strings.Contains(earlier, "Donald Trump is"):
		a.Text = "Don Jr., Ivanka, Eric, Tiffany and Barron."
	case strings.Contains(last, "children"):
		a.Text = "The children of John Doe."
	}
	if strings.Contains(last, "fail") {
		a.Status = http.StatusBadRequest
	}
	if strings.Contains(last, "slowly") {
		s.mu.Lock()
		a.Hold = s.held
		s.mu.Unlock()
	}
	a.Malformed = strings.Contains(last, "broken")
	a.Long = strings.Contains(last, "at length")
	return a
}
