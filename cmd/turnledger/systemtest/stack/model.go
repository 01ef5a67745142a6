package stack

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/turnledger/turnledger/services/chat/modeltest"
)

// Model is a model server that answers from the prompt that it is given.
type Model struct {
	*modeltest.Server
	mu sync.Mutex
	// held, where not nil, keeps an answer to "slowly" after its first word until it is closed.
	held chan struct{}
}

// NewModel starts a model server that ends with the test.
func NewModel(t testing.TB) *Model {
	s := &Model{}
	s.Server = modeltest.New(t, s.answer)
	return s
}

// Hold makes answers to "slowly" wait from now on, until release is called.
func (s *Model) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return func() { close(held) }
}

// Env returns the settings of a process that asks this model.
func (s *Model) Env() []string {
	return []string{"TURNLEDGER_MODEL_URL=" + s.URL + "/v1", "TURNLEDGER_MODEL_NAME=scripted"}
}

func (s *Model) answer(prompt []string) (a modeltest.Answer) {
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
