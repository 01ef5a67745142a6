package main

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
)

// The texts of a turn: 120 bytes of question and 600 of answer. Each has words of its own, so that what compresses
// texts gains no more from them than from what people write.
var (
	questions = said(120)
	answers   = said(600)
)

// texts is a ring of a thousand texts. Safe for concurrent use.
type texts struct {
	all  []string
	next atomic.Uint64
}

func (t *texts) text() string { return t.all[t.next.Add(1)%uint64(len(t.all))] }

func question() string { return questions.text() }

func answer() string { return answers.text() }

// said makes texts of words that are drawn from 2,000, the same in each run.
func said(length int) *texts {
	draw := rand.New(rand.NewPCG(1, uint64(length)))
	words := make([]string, 2000)
	for i := range words {
		word := make([]byte, 2+draw.IntN(8))
		for k := range word {
			word[k] = byte('a' + draw.IntN(26))
		}
		words[i] = string(word)
	}
	t := &texts{all: make([]string, 1000)}
	for i := range t.all {
		var b strings.Builder
		for b.Len() < length {
			b.WriteString(words[draw.IntN(len(words))] + " ")
		}
		t.all[i] = b.String()[:length]
	}
	return t
}
