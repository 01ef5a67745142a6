package stack

import (
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
)

// Model is a scripted model that processes ask.
type Model struct{ *modeltest.Scripted }

// NewModel starts a model server that ends with the test.
func NewModel(t testing.TB) *Model { return &Model{modeltest.NewScripted(t)} }

// Env returns the settings of a process that asks this model.
func (m *Model) Env() []string {
	return []string{"TURNLEDGER_MODEL_URL=" + m.URL + "/v1", "TURNLEDGER_MODEL_NAME=scripted"}
}
