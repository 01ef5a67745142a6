package importer

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// value is a JSON value of a file: the number of the line where it begins, and the bytes of the file up to its end and
// behind the value before it. err is what is wrong with it.
type value struct {
	line int
	size int64
	text []byte
	err  error
}

var errNotJSON = errors.New("not JSON: nothing from here on is imported from this file")

// eachValue calls use for each value of a file: a value on each line, or, where the file begins with a list or with a
// brace alone on its line, values on any number of lines, and the elements of lists.
func eachValue(f io.Reader, use func(value) error) error {
	r := bufio.NewReaderSize(f, 1<<20)
	if mark, _ := r.Peek(3); string(mark) == "\xef\xbb\xbf" {
		_, _ = r.Discard(len(mark)) // it was peeked
	}
	line := 1
	for {
		head, err := r.Peek(1)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !bytes.ContainsAny(head, " \t\r\n") {
			break
		}
		if head[0] == '\n' {
			line++
		}
		_, _ = r.Discard(1) // it was peeked
	}
	if spansLines(r) {
		return eachSpanning(r, line, use)
	}
	return eachLine(r, line, use)
}

// indentation bounds the white space between a brace and the end of its line.
const indentation = 64

// spansLines reports whether the values that follow are on any number of lines.
func spansLines(r *bufio.Reader) bool {
	head, _ := r.Peek(indentation) // less at the end of the file
	if head[0] == '[' {
		return true
	}
	rest, is := bytes.CutPrefix(head, []byte("{"))
	return is && bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r"), []byte("\n"))
}

// eachLine reads a value on each line. A last line without a line feed counts too.
func eachLine(r *bufio.Reader, line int, use func(value) error) error {
	for ; ; line++ {
		text, err := r.ReadBytes('\n')
		v := value{line: line, size: int64(len(text)), text: bytes.TrimSpace(text)}
		if len(v.text) > 0 {
			if err := use(v); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// eachSpanning reads values, and the elements of lists, as a stream.
func eachSpanning(r io.Reader, line int, use func(value) error) error {
	feeds := &lineFeeds{r: r, line: line}
	dec := jsontext.NewDecoder(feeds, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	for before := int64(0); ; {
		text, err := element(dec)
		if errors.Is(err, io.EOF) {
			return nil
		}
		at := dec.InputOffset()
		v := value{size: at - before, text: text}
		if syntax, is := errors.AsType[*jsontext.SyntacticError](err); is {
			v.line, v.err = feeds.lineOf(syntax.ByteOffset), errNotJSON
			return use(v)
		}
		if err != nil {
			return err
		}
		v.line, before = feeds.lineOf(at-int64(len(text))), at
		if err := use(v); err != nil {
			return err
		}
	}
}

// element returns the next value outside of a list, or in one that is in no other.
func element(dec *jsontext.Decoder) (jsontext.Value, error) {
	for {
		if k := dec.PeekKind(); k != ']' && (k != '[' || dec.StackDepth() > 0) {
			v, err := dec.ReadValue()
			return slices.Clone(v), err
		}
		if _, err := dec.ReadToken(); err != nil {
			return nil, err
		}
	}
}

// lineFeeds knows the lines of what is read through it.
type lineFeeds struct {
	r    io.Reader
	read int64
	// at are the offsets of the line feeds behind the line.
	at   []int64
	line int
}

// Read implements io.Reader.
func (f *lineFeeds) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			f.at = append(f.at, f.read+int64(i))
		}
	}
	f.read += int64(n)
	return n, err
}

// lineOf returns the line of an offset. Offsets grow from call to call.
func (f *lineFeeds) lineOf(offset int64) int {
	for len(f.at) > 0 && f.at[0] < offset {
		f.line++
		f.at = f.at[1:]
	}
	return f.line
}
