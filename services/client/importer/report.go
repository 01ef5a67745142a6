package importer

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/turnledger/turnledger/services/client"
)

// Repeated is how many more lines failed for a reason than were reported one by one.
type Repeated struct {
	Why   string `json:"why"`
	Lines int    `json:"lines"`
}

// oneByOne is how many lines of one kind of failure are reported one by one.
const oneByOne = 10

// report puts the failures of batches, which are recorded at the same time, in the order of the files.
type report struct {
	waiting map[int][]line
	told    int // the number of the last batch that was reported
	// kinds counts the failures of each kind.
	kinds map[string]int
}

// reportTo reports a batch, and those that waited for it.
func (im *importer) reportTo(n int, batch []line) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.report.waiting[n] = batch
	for {
		next, done := im.report.waiting[im.report.told+1]
		if !done {
			return
		}
		delete(im.report.waiting, im.report.told+1)
		im.report.told++
		im.tell(next)
	}
}

// reportRest reports what an import that ended early has left, and counts what was not reported one by one.
func (im *importer) reportRest() {
	im.mu.Lock()
	defer im.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(im.report.waiting)) {
		im.tell(im.report.waiting[n])
	}
	for _, why := range slices.Sorted(maps.Keys(im.report.kinds)) {
		if n := im.report.kinds[why] - oneByOne; n > 0 {
			im.done.More = append(im.done.More, Repeated{Why: why, Lines: n})
		}
	}
}

func (im *importer) tell(batch []line) {
	for _, l := range batch {
		if l.err != nil && !errors.Is(l.err, errSameLine) && !errors.Is(l.err, errReported) {
			im.done.Failed++
			why := kindOf(l.err)
			if im.report.kinds[why]++; im.report.kinds[why] <= oneByOne {
				im.Failed(l.where, l.err)
			}
		}
		im.Passed(l.size)
	}
}

// kindOf returns what failures of different lines have in common: the code of the server's refusal, or the cause
// without what stands around it.
func kindOf(err error) string {
	if refused, is := errors.AsType[*client.Error](err); is && refused.Code != "" {
		return refused.Code
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// leaveOut notes the members of an object that say something and are not kept.
func (im *importer) leaveOut(object []byte, kept ...string) {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(object, &members) // it was read before
	var others []string
	for name, v := range members {
		if says(v) && !slices.Contains(kept, name) {
			others = append(others, name)
		}
	}
	im.drop(others)
}

// drop notes names of what is not kept.
func (im *importer) drop(names []string) {
	if len(names) == 0 {
		return
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	for _, name := range names {
		im.notKept[name] = true
	}
}
