package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

// pointer is the note of the served generation.
type pointer struct {
	// Store is drawn for each store that was empty when it was met. Former are those of the stores before.
	Store  string   `json:"store"`
	Former []string `json:"former,omitempty"`
	// Log names the log.
	Log        string `json:"log"`
	Generation uint64 `json:"generation"`
	// Last is the highest number of a generation that was ever begun; no number is used twice.
	Last uint64 `json:"last"`
	// Model made the vectors.
	Model string `json:"model"`
	contents
	// Clean are the positions up to which nothing that was erased has ever been in this generation's files.
	Clean   []uint64  `json:"clean,omitempty"`
	BegunAt time.Time `json:"begun_at"`
	// ServedAt is when it came in the place of the one before; zero if there was none.
	ServedAt time.Time `json:"served_at,omitzero"`
}

// contents says what of the turns of anonymous sessions, and of the texts of turns, a generation holds. Each process
// that has fed it has added its own settings.
type contents struct {
	Anonymous extent `json:"anonymous,omitempty"`
	Texts     extent `json:"texts,omitempty"`
}

// extent is how much of something a generation holds.
type extent string

const (
	none extent = "none"
	some extent = "some"
	full extent = "all"
)

// with returns the extent after more was written.
func (e extent) with(more extent) extent {
	if e == more {
		return e
	}
	return some
}

// contents returns what the settings ask for.
func (c *Config) contents() contents {
	out := contents{Anonymous: none, Texts: full}
	if c.Anonymous {
		out.Anonymous = full
	}
	if c.WithoutTexts {
		out.Texts = none
	}
	return out
}

const pointerKey = "index.served"

func (p pointer) key(kind string, partition int) string {
	return fmt.Sprintf("index.%s.%s.%d.%d", kind, p.Store, p.Generation, partition)
}

// collection of the generation. Its mark tells it from a collection that the store made by itself at a late write.
func (p pointer) collection() Collection {
	return Collection{
		Name: fmt.Sprintf("%s%s_%06d", Prefix, p.Store[:8], p.Generation),
		Mark: fmt.Sprint(markBegins, p.Store, markLog, p.Log, markNumber, p.Generation),
	}
}

// isOfAnother reports whether a collection belongs to another log than the one that is named. One that the store has
// made by itself does not say to which.
func isOfAnother(c Collection, log string) bool {
	_, of, named := strings.Cut(c.Mark, markLog)
	of, _, _ = strings.Cut(of, markNumber)
	return named && strings.HasPrefix(c.Mark, markBegins) && of != log
}

// ofOwn returns the collections that belong to no other log.
func (v *View) ofOwn(ctx context.Context, all []Collection) ([]Collection, error) {
	log, err := v.log(ctx)
	return slices.DeleteFunc(all, func(c Collection) bool { return isOfAnother(c, log) }), err
}

// precedes reports whether a collection is a later generation of the same store. Two processes that begin a store at
// once leave one behind, and a late write makes a former one anew, without a mark.
func (p pointer) precedes(c Collection) bool {
	// The number of a generation stands at the end of the name, with leading zeros.
	number := len(p.collection().Name) - len("000000")
	return strings.HasPrefix(c.Mark, markBegins+p.Store) && len(c.Name) > number &&
		c.Name[number:] > p.collection().Name[number:]
}

// markBegins begins the mark of each collection that a view has made; the id of its store follows.
const markBegins = "Turnledger's index of turns, store "

const (
	// markLog and markNumber are followed by the name of the log and the number of the generation.
	markLog, markNumber = ", log ", ", generation "
	// logKey is the note of the log's name in marks.
	logKey = "index.log"
)

// log returns the name of the log, which is drawn once.
func (v *View) log(ctx context.Context) (name string, err error) {
	revision, err := v.cfg.Notes.Read(ctx, logKey, &name)
	if err == nil && revision == 0 {
		name = uuid.NewString()
		if _, err = v.cfg.Notes.Write(ctx, logKey, name, 0); errors.Is(err, jetlog.ErrConflict) {
			_, err = v.cfg.Notes.Read(ctx, logKey, &name)
		}
	}
	return name, failed(err, "name the log")
}

// alone fails if the store has an index of another log, which has the same alias.
func (v *View) alone(ctx context.Context, log string) error {
	all, err := v.cfg.Store.List(ctx)
	for _, c := range all {
		if err == nil && isOfAnother(c, log) {
			err = projections.Unavailable(fmt.Errorf("this store has %w (%s): each log needs a Weaviate of its own. "+
				"If that log is no more, run turnledger projections rebuild index", errAnother, c.Name))
		}
	}
	return err
}

// pointer reads the pointer; its generation is 0 if there is none.
func (v *View) pointer(ctx context.Context, notes desk.Notes) (p pointer, revision uint64, err error) {
	revision, err = notes.Read(ctx, pointerKey, &p)
	return p, revision, failed(err, "read which generation is served")
}

// mostFormer bounds the former stores that a pointer names.
const mostFormer = 32

// moving says whether the index goes to this store if another one has it. Only an operator can tell whether that one is
// still used.
type moving bool

const (
	whereItIs moving = false
	move      moving = true
)

// ensure returns the served generation, to which it adds the settings of this process. If the store does not have its
// collection, ensure begins an empty one in its place: the log fills it. A process that ends before it has written the
// pointer leaves a collection that was never served, which Sweep drops.
func (v *View) ensure(ctx context.Context, to moving) (pointer, desk.Notes, error) {
	notes := v.cfg.Notes
	for {
		p, revision, err := v.pointer(ctx, notes)
		if err != nil {
			return p, nil, err
		}
		if p.Generation != 0 {
			there, err := v.holds(ctx, p)
			if to == move && errors.Is(err, errElsewhere) {
				err = nil
			}
			if err == nil && there {
				err = v.addSettings(ctx, &p, revision)
			}
			if errors.Is(err, jetlog.ErrConflict) {
				continue
			}
			if err != nil || there {
				return p, notes, err
			}
			v.cfg.Logger.Warn("the store lacks the index, which is filled again from the log",
				"generation", p.Generation)
		}
		log, err := v.log(ctx)
		if err == nil && to != move {
			err = v.alone(ctx, log)
		}
		if err != nil {
			return p, nil, err
		}
		n := pointer{
			Store: uuid.NewString(), Log: log, Generation: p.Last + 1, Last: p.Last + 1,
			Model: v.cfg.Embedder.Model(), contents: v.cfg.contents(), BegunAt: v.cfg.Now().UTC(),
		}
		if p.Generation != 0 {
			n.Former = append(p.Former, p.Store)[max(0, len(p.Former)+1-mostFormer):]
		}
		if n.Clean, err = v.clean(ctx); err != nil {
			return p, nil, err
		}
		if err := v.cfg.Store.Create(ctx, n.collection()); err != nil {
			return p, nil, err
		}
		err = notes.Commit(ctx, pointerKey, n, pointerKey, revision)
		if errors.Is(err, jetlog.ErrConflict) {
			err = v.cfg.Store.Drop(ctx, n.collection().Name) // another process was faster
			if err == nil {
				continue
			}
		}
		if err == nil {
			err = v.cfg.Store.Serve(ctx, n.collection().Name)
		}
		return n, notes, failed(err, "begin a generation")
	}
}

// addSettings notes that this process feeds a generation by its own settings.
func (v *View) addSettings(ctx context.Context, p *pointer, revision uint64) error {
	own, before := v.cfg.contents(), p.contents
	p.contents = contents{before.Anonymous.with(own.Anonymous), before.Texts.with(own.Texts)}
	if p.contents == before {
		return nil
	}
	return failed(v.cfg.Notes.Commit(ctx, pointerKey, p, pointerKey, revision), "note the settings of a generation")
}

// clean returns the positions up to which the log has forgotten what was erased.
func (v *View) clean(ctx context.Context) (out []uint64, err error) {
	for k := range v.cfg.Partitions {
		at := events.Position{}
		if v.cfg.Erased != nil {
			if at, err = v.cfg.Erased(ctx, k); err != nil {
				return nil, failed(err, "ask how far the log has forgotten what was erased")
			}
		}
		out = append(out, at.Seq)
	}
	return out, nil
}

// Files returns the position up to which no file of the store holds what was erased: that of the served generation's
// begin, once no other collection of the index is left, and no runner of the one before can write any more.
func (v *View) Files(ctx context.Context, partition int) (events.Position, error) {
	out := events.Position{Partition: partition}
	p, _, err := v.served(ctx)
	if err != nil || v.cfg.Now().Sub(p.ServedAt) < arrived {
		return out, err
	}
	all, err := v.cfg.Store.List(ctx)
	if err == nil {
		all, err = v.ofOwn(ctx, all)
	}
	if err == nil && len(all) == 1 && all[0] == p.collection() && partition < len(p.Clean) {
		out.Seq = p.Clean[partition]
	}
	return out, err
}

// place is the note of a partition's checkpoint.
type place struct {
	Created time.Time `json:"stream_created"`
	Seq     uint64    `json:"seq"`
	EventID string    `json:"event_id,omitempty"`
	// Deleted is the sequence of the last event that deleted an object, whose bytes may still be in the store's
	// files. Settled is a sequence up to which no object that was deleted can come back.
	Deleted uint64 `json:"deleted,omitempty"`
	Settled uint64 `json:"settled,omitempty"`
}

func (p place) checkpoint(of pointer, partition int, epoch uint64) projections.Checkpoint {
	return projections.Checkpoint{
		Partition: partition, Created: p.Created, Seq: p.Seq, EventID: p.EventID, Epoch: epoch, Store: of.Store,
		Generation: of.Generation,
	}
}
