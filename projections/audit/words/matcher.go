package words

import (
	"math/bits"
	"strings"
)

// matcher finds several phrases in one pass over a text, by the algorithm Shift-And (Baeza-Yates and Gonnet, 1992). Of
// each phrase it keeps 64 bits: bit j is set where the last j+1 words of the text are the first j+1 of the phrase. So a
// word of the text costs one step a phrase, however long the phrases are and however often their words repeat.
type matcher struct {
	phrases [][]token
	// masks has, by word or form, the places in each phrase at which it may stand.
	masks map[string][]uint64
	// begins are the beginnings of words, with the places in each phrase at which such a word may stand.
	begins []beginning
	// any has the places at which any word may stand, run those whose letter must follow the one before directly.
	any, run []uint64
	state    []uint64
	steps    int
}

type beginning struct {
	of   string
	mask []uint64
}

// newMatcher makes a matcher of phrases of at most 64 words.
func newMatcher(phrases [][]token) *matcher {
	m := &matcher{
		phrases: phrases, masks: map[string][]uint64{}, any: make([]uint64, len(phrases)),
		run: make([]uint64, len(phrases)), state: make([]uint64, len(phrases)),
	}
	for i, phrase := range phrases {
		for j, t := range phrase {
			bit := uint64(1) << j
			if t.word == "" {
				m.any[i] |= bit
			}
			if t.begins {
				mask := make([]uint64, len(phrases))
				mask[i] = bit
				m.begins = append(m.begins, beginning{t.plain, mask})
				continue
			}
			for _, form := range append([]string{t.word}, t.forms...) {
				if m.masks[form] == nil {
					m.masks[form] = make([]uint64, len(phrases))
				}
				m.masks[form][i] |= bit
			}
			if j > 0 && runsOn(phrase[j-1], t) {
				m.run[i] |= bit
			}
		}
	}
	return m
}

// found is how often a phrase occurs, and the place of the first.
type found struct{ n, first int }

// match finds the phrases among the words of a text.
func (m *matcher) match(all []token) []found {
	out := make([]found, len(m.phrases))
	for i := range all {
		m.step(all, i)
		for p, phrase := range m.phrases {
			if bits.Len64(m.state[p]) < len(phrase) {
				continue
			}
			if out[p].n == 0 {
				out[p].first = i + 1 - len(phrase)
			}
			out[p].n++
		}
	}
	return out
}

// step takes a word of the text to the states of all phrases.
func (m *matcher) step(all []token, i int) {
	word := m.masks[all[i].word]
	apart := i == 0 || !runsOn(all[i-1], all[i])
	for p := range m.state {
		m.steps++
		at := m.any[p]
		if word != nil {
			at |= word[p]
		}
		for _, b := range m.begins {
			if strings.HasPrefix(all[i].plain, b.of) {
				at |= b.mask[p]
			}
		}
		for _, form := range all[i].forms {
			if mask := m.masks[form]; mask != nil {
				at |= mask[p]
			}
		}
		if apart {
			at &^= m.run[p]
		}
		m.state[p] = (m.state[p]<<1 | 1) & at
	}
}
