package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/client"
)

// tree is a conversation of an export. Its messages are a tree where a question was edited or an answer made again.
type tree struct {
	id, title string
	// nodes are all messages in the order of the export.
	nodes []*node
	// current is the id of the message where the conversation stands; the last one, if the export does not say.
	current string
}

// node is a message of an export, as the log keeps it: more than one chat message where it called tools.
type node struct {
	id, parent string
	at         time.Time
	in         []messageIn
	// dropped is the kind of a message that is in no turn; "" for the others.
	dropped string

	up       *node
	children []*node
	reached  bool
}

// The kinds of messages that are dropped in every format.
const (
	droppedEmpty     = "empty"
	droppedTwice     = "the same id twice"
	droppedCircle    = "in a circle"
	droppedLarge     = "too large (its place says so)"
	droppedErased    = "of a session that was erased here"
	droppedRedacted  = "of a turn that was redacted here"
	droppedThoughts  = "thoughts"
	droppedHidden    = "hidden"
	droppedNoMessage = "without a message"
	droppedKind      = "of an unknown kind"
)

func (n *node) asks() bool { return n.in[0].role == "user" }

// key is what the request ids of a turn know of a message: the same in every export, whatever its id looks like.
func (n *node) key() string {
	sum := sha256.Sum256([]byte(n.id))
	return hex.EncodeToString(sum[:8])
}

// grow joins the messages that are kept to a tree, in which none that was dropped stands between two. It returns what
// all conversations begin with: a node that is no message.
func (t *tree) grow() *node {
	byID := map[string]*node{}
	for _, n := range t.nodes {
		if byID[n.id] == nil {
			byID[n.id] = n
		} else {
			n.dropped = droppedTwice
		}
	}
	root := &node{}
	for _, n := range t.nodes {
		if n.dropped == "" {
			up := keptFrom(byID, n.parent, len(t.nodes))
			if up == nil {
				up = root
			}
			n.up, up.children = up, append(up.children, n)
		}
	}
	root.reach()
	for _, n := range t.nodes {
		if n.dropped == "" && !n.reached {
			n.dropped = droppedCircle
		}
	}
	return root
}

// keptFrom returns the message of an id, or the nearest above it that is kept.
func keptFrom(byID map[string]*node, id string, most int) *node {
	n := byID[id]
	for ; n != nil && n.dropped != "" && most > 0; most-- {
		n = byID[n.parent]
	}
	if n == nil || n.dropped != "" {
		return nil
	}
	return n
}

// reach marks what stands below a node, and puts it in the order of its times.
func (n *node) reach() {
	for next := []*node{n}; len(next) > 0; {
		n, next = next[len(next)-1], next[:len(next)-1]
		n.reached = true
		slices.SortStableFunc(n.children, func(a, b *node) int {
			if a.at.IsZero() || b.at.IsZero() {
				return 0
			}
			return a.at.Compare(b.at)
		})
		next = append(next, n.children...)
	}
}

// standing are the turns that a session has in the log, by their request ids.
type standing map[string]client.Turn

// branch is a session that a path through the tree becomes: that of the conversation, or a fork.
type branch struct {
	session string
	// parent and request are those of a fork.
	parent  *branch
	request string
	// path are all messages, shared ones first; own is the index of the first that parts it from its parent.
	path []*node
	own  int
	// turns are all turns, shared ones first, and shared is their number.
	turns  []*treeTurn
	shared int
	// closed are the questions behind which a turn ends, whatever follows: they were recorded before it did.
	closed map[*node]bool
	opened bool
	erased bool
}

// treeTurn is a turn of a branch.
type treeTurn struct {
	client.WholeTurn
	nodes []*node
	// at is when it was active last.
	at time.Time
	// stands is the turn in the log, where there is one.
	stands *client.Turn
}

// requestPrefix begins the request ids of imported turns, forks and descriptions.
const requestPrefix = "import-"

// plan lays the tree out as sessions, a fork behind what it forks. Turns that stand say which way their session went;
// a session that is new goes to the message where the conversation stands, and a fork to its oldest. What leaves a
// branch that was erased is erased with it: it repeats its words.
func (t *tree) plan(stands func(session string) (standing, error)) ([]*branch, error) {
	root := t.grow()
	if len(root.children) == 0 {
		return nil, nil
	}
	all := []*branch{{session: t.id}}
	for i := 0; i < len(all); i++ {
		b := all[i]
		has, err := stands(b.session)
		if b.erased = b.parent != nil && b.parent.erased || errors.Is(err, errErased); err != nil && !b.erased {
			return nil, err
		}
		var wanted map[*node]bool
		if b.parent == nil {
			wanted = t.wanted()
		}
		w := t.way(has)
		b.closed = w.open
		if b.parent != nil {
			maps.Copy(b.closed, b.parent.closed)
		}
		b.walk(root, w, wanted)
		b.divide(has)
		all = append(all, b.forks(root, t.id)...)
	}
	return all, nil
}

// wanted are the messages up to the one where the conversation stands.
func (t *tree) wanted() map[*node]bool {
	byID := map[string]*node{}
	for _, n := range t.nodes {
		if byID[n.id] == nil {
			byID[n.id] = n
		}
	}
	out := map[*node]bool{}
	for n := keptFrom(byID, t.current, len(t.nodes)); n != nil && !out[n]; n = n.up {
		out[n] = true
	}
	return out
}

// way are the messages that a session's turns lie on, by what their request ids say.
type way struct {
	on map[*node]bool
	// open are the questions that were recorded without an answer: the oldest is theirs.
	open map[*node]bool
}

func (t *tree) way(has standing) way {
	w := way{map[*node]bool{}, map[*node]bool{}}
	if len(has) == 0 {
		return w
	}
	known := map[string]bool{}
	for request := range has {
		for _, key := range keysOf(request) {
			known[key] = true
		}
	}
	for _, n := range t.nodes {
		key := n.key()
		if !n.reached || !known[key] {
			continue
		}
		if _, open := has[requestPrefix+key]; open {
			w.open[n] = true
		}
		for ; n != nil && !w.on[n]; n = n.up { // up to what another has marked
			w.on[n] = true
		}
	}
	return w
}

// walk goes from the branch's first message to a last one.
func (b *branch) walk(root *node, w way, wanted map[*node]bool) {
	n := root
	if len(b.path) > 0 {
		n = b.path[len(b.path)-1]
	}
	for len(n.children) > 0 {
		next := n.children[0]
		is := func(set map[*node]bool) func(*node) bool { return func(n *node) bool { return set[n] } }
		if i := slices.IndexFunc(n.children, is(w.on)); i >= 0 {
			next = n.children[i]
		} else if i := slices.IndexFunc(n.children, is(wanted)); i >= 0 && !w.open[n] {
			next = n.children[i]
		}
		n = next
		b.path = append(b.path, n)
	}
}

// divide divides the path into turns. Those that are the parent's turns, too, are shared.
func (b *branch) divide(has standing) {
	from := 0
	var ends []int
	asked := b.path[0].asks()
	for i, n := range b.path[1:] {
		before := b.path[i]
		answers := before.asks() && !n.asks()
		if asked && n.asks() && !before.asks() || b.closed[before] && !answers {
			ends = append(ends, i+1)
		}
		asked = asked || n.asks()
	}
	for _, end := range append(ends, len(b.path)) {
		part := b.path[from:end]
		if p := b.parent; p != nil && b.shared == len(b.turns) && end <= b.own && b.shared < len(p.turns) &&
			slices.Equal(p.turns[b.shared].nodes, part) {
			b.turns = append(b.turns, p.turns[b.shared])
			b.shared++
		} else {
			b.turns = append(b.turns, b.turn(part, has))
		}
		from = end
	}
}

// turn makes a turn of messages.
func (b *branch) turn(part []*node, has standing) *treeTurn {
	t := &treeTurn{nodes: part}
	question, answer := part[len(part)-1], (*node)(nil)
	if q := slices.IndexFunc(part, (*node).asks); q >= 0 {
		if a := slices.IndexFunc(part[q:], func(n *node) bool { return !n.asks() }); a >= 0 {
			question, answer = part[q+a-1], part[q+a]
		}
	}
	request := requestPrefix + question.key()
	if _, open := has[request]; !open && answer != nil {
		request += "-" + answer.key()
	}
	t.WholeTurn = fitted(b.session, part)
	t.RequestID = request
	asked := question.at
	for _, n := range part {
		if t.at = latest(t.at, n.at); asked.IsZero() {
			asked = n.at
		}
	}
	if !asked.IsZero() {
		t.Metadata = map[string]any{OriginalTime: asked.UTC().Format(time.RFC3339Nano)}
	}
	if was, is := has[request]; is {
		t.stands = &was
	}
	return t
}

// OriginalTime is the key of a turn's metadata under which an import keeps when the turn was.
const OriginalTime = "original_created_at"

// keysOf returns what a request id knows of messages.
func keysOf(request string) []string {
	const size = 2 * 8
	rest, is := strings.CutPrefix(request, requestPrefix)
	switch {
	case is && len(rest) == size:
		return []string{rest}
	case is && len(rest) == 2*size+1:
		return []string{rest[:size], rest[size+1:]}
	}
	return nil
}

// forks returns the branches that leave the path behind what it shares.
func (b *branch) forks(root *node, conversation string) (out []*branch) {
	from := b.own
	if b.parent != nil {
		from++ // the first message of a fork has siblings that are others' forks
	}
	for i := from; i < len(b.path); i++ {
		up := root
		if i > 0 {
			up = b.path[i-1]
		}
		for _, n := range up.children {
			if n != b.path[i] {
				request := requestPrefix + n.key()
				out = append(out, &branch{
					session: events.BranchID(conversation, request), parent: b, request: request,
					path: append(slices.Clone(b.path[:i]), n), own: i,
				})
			}
		}
	}
	return out
}

// Bounds of the JSON of a line, a start or an answer, and of the messages of a turn that is measured.
const (
	bytesOfTurn  = 900 << 10
	likelySmall  = bytesOfTurn / 4
	noticeOfSize = "[A message of %d bytes was not imported: it is too large]"
)

// fitted makes a turn of messages that a server takes: by one line, or else by a start and an answer. While one of
// these is too large, its largest messages become notices.
func fitted(session string, part []*node) client.WholeTurn {
	var all []messageIn
	var of []*node
	size := 0
	for _, n := range part {
		for _, m := range n.in {
			of, size = append(of, n), size+len(m.raw)
		}
		all = append(all, n.in...)
	}
	if size >= likelySmall {
		end := endOfQuestion(all)
		shorten(all[:end], of[:end], "user")
		shorten(all[end:], of[end:], "assistant")
	}
	return makeTurn(session, 0, all)
}

// shorten makes notices of the largest messages of a question or an answer while it is too large.
func shorten(part []messageIn, of []*node, role string) {
	bySize := make([]int, len(part))
	for i := range part {
		bySize[i] = i
	}
	slices.SortStableFunc(bySize, func(a, b int) int { return len(part[b].raw) - len(part[a].raw) })
	takes := func(m messageIn) int { // of the half: most messages have their text in it twice
		if m.role == role {
			return len(m.raw) + len(m.text)
		}
		return len(m.raw)
	}
	for {
		h := makeHalf(part, role)
		size := len(encode([]any{h.neutral, h.translated, h.messages}))
		if size <= bytesOfTurn {
			return
		}
		for ; size > bytesOfTurn; bySize = bySize[1:] {
			if len(bySize) == 0 || len(part[bySize[0]].raw) < noticed {
				return // nothing in it is large
			}
			n := bySize[0]
			notice := noticeFor(part[n])
			size += takes(notice) - takes(part[n])
			part[n], of[n].dropped = notice, droppedLarge
		}
	}
}

// noticed is the size below which no message becomes a notice.
const noticed = 1 << 10

// noticeFor returns a message that says that one in its place was too large.
func noticeFor(m messageIn) messageIn {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(m.raw, &members) // it was read before
	notice := fmt.Sprintf(noticeOfSize, len(m.raw))
	out := map[string]any{"role": m.role, "content": notice}
	if id := members["tool_call_id"]; id != nil && len(id) < noticed {
		out["tool_call_id"] = id
	}
	if calls := members["tool_calls"]; calls != nil && len(calls) < noticed {
		out["tool_calls"] = calls
	}
	return chat(out)
}
