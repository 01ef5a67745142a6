package answer

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/items"
)

// Config of a Service.
type Config struct {
	// Ports write and read, whatever the roles of the process. Threads need Turns and SessionWrites alone.
	services.Ports

	States    States
	Questions Questions
	Contexts  Contexts
	Log       Log
	Model     services.Model
	Presence  Presence
	// Relay lets processes watch and stop each other's answers; nil: none does.
	Relay Relay
	// Output returns the items that an answer is, as they are recorded.
	Output func(services.ModelAnswer, services.Mint) []message.Item
	IDs    items.Minter
	// SessionOf returns the session of a turn that was pruned, by the turn's id, or one of which texts have left the
	// log, by its digest (events.SessionDigest), as it was noted then; or "".
	SessionOf func(ctx context.Context, name string) (string, error)
	// OnPending applies to messages that name none; Enqueue by default.
	OnPending services.OnPending
	// OnDisconnect applies to calls that name none; "" is what their surface does.
	OnDisconnect services.OnDisconnect
	// Summarizer compacts histories; nil: none does.
	Summarizer Summarizer
	// Summaries: prompts of threads have a summary in the place of turns that the window leaves out.
	Summaries bool
	// Timeout of an answer; 120 s by default.
	Timeout time.Duration
	// Count counts the tokens of a text, for models that do not tell their usage.
	Count func(text string) int
	// Context is how many tokens the model takes, with those of its answer; 0 if that is not known. MaxAnswer is how
	// many tokens an answer may have that its request does not bound; 0 if the model decides.
	Context   int
	MaxAnswer int64
	// PromptKey is the key of the digests of prompts. Without it answers keep none.
	PromptKey []byte
	Logger    *slog.Logger
}

// Service answers messages and requests for responses. Safe for concurrent use.
type Service struct {
	cfg   Config
	calls calls

	live       room
	mirrors    mirrors
	background background

	mu      sync.Mutex
	running map[uuid.UUID]*answering
	// stopping is set when this process no longer completes answers.
	stopping bool
	// failed holds the steps that this process gave up, with the time at which it did: nothing waits for them.
	failed map[uuid.UUID]time.Time
}

var (
	_ services.Chat           = (*Service)(nil)
	_ services.Responder      = (*Service)(nil)
	_ services.RunningAnswers = (*Service)(nil)
)

// New makes a service; it does no I/O.
func New(cfg Config) *Service {
	cfg.Ports, cfg.OnPending = cfg.WithDefaults(), cmp.Or(cfg.OnPending, services.Enqueue)
	cfg.Timeout = cmp.Or(cfg.Timeout, 120*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.SessionOf == nil {
		cfg.SessionOf = func(context.Context, string) (string, error) { return "", nil }
	}
	return &Service{
		cfg: cfg, calls: calls{of: map[string][]context.Context{}}, live: room{of: map[string][]*running{}},
		mirrors:    mirrors{of: map[uuid.UUID]*mirror{}},
		background: background{of: map[string]int{}},
		running:    map[uuid.UUID]*answering{}, failed: map[uuid.UUID]time.Time{},
	}
}
