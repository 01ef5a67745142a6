package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// readThreads reads the files of an Assistants export, and sends the threads; what is wrong comes first.
func (im *importer) readThreads(ctx context.Context, files []string, out chan<- line) error {
	defer close(out)
	all := &threads{byID: map[string]*thread{}, unread: map[string]bool{}, leaveOut: im.leaveOut}
	err := eachFile(files, func(name string, f io.Reader) error {
		text, err := io.ReadAll(f)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		all.readFile(name, text)
		return nil
	})
	if err != nil {
		return err
	}
	for _, l := range all.lines() {
		select {
		case out <- l:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// file is a file that is being read.
type file struct {
	*threads

	name string
	text []byte
	// counted is an offset, and number the number of its line.
	counted, number int
}

// at returns where an offset of the file stands, as a name and the number of a line. Offsets mostly grow.
func (f *file) at(offset int) string {
	offset = min(offset, len(f.text))
	if offset < f.counted {
		f.counted, f.number = 0, 1
	}
	f.number += bytes.Count(f.text[f.counted:offset], []byte("\n"))
	f.counted = offset
	return fmt.Sprintf("%s:%d", f.name, f.number)
}

// readFile reads the values of a file, one behind the other: a page on many lines, or a value on each line.
func (t *threads) readFile(name string, text []byte) {
	f := &file{threads: t, name: name, text: text, number: 1}
	t.bytes += int64(len(text))
	pos := 0
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) {
		pos = 3
	}
	for pos < len(text) {
		dec := decoder(text[pos:])
		v, err := dec.ReadValue()
		switch end := pos + int(dec.InputOffset()); {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			pos = f.unreadable(pos, err)
		default:
			f.value(v, end-len(v), nil)
			pos = end
		}
	}
}

// decoder reads JSON as it is written, also half a surrogate pair, or a name twice.
func decoder(text []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowInvalidUTF8(true),
		jsontext.AllowDuplicateNames(true))
}

// unreadable notes a part of a file that is no JSON, and returns where the next value may begin: at the beginning of a
// line. The threads that the part names are held back, and where it names none, those of the whole file.
func (f *file) unreadable(pos int, err error) (next int) {
	began := pos
	pos += len(f.text[pos:]) - len(bytes.TrimLeft(f.text[pos:], " \t\r\n"))
	next = len(f.text)
	for at := pos; ; {
		feed := bytes.IndexByte(f.text[at:], '\n')
		if feed < 0 {
			break
		}
		if at += feed + 1; at < len(f.text) && (f.text[at] == '{' || f.text[at] == '[') {
			next = at
			break
		}
	}
	where := pos
	if syntax, is := errors.AsType[*jsontext.SyntacticError](err); is {
		where = max(pos, min(began+int(syntax.ByteOffset), next-1))
	}
	part := f.text[pos:next]
	why := errors.New("not JSON: nothing is imported of the threads that it names")
	if !f.hold(part, pos) {
		f.unread[f.name] = true
		why = errors.New("not JSON, and it names no thread: nothing is imported of the threads of this file")
	}
	f.refuse(f.at(where), int64(len(part)), why)
	return next
}

// hold holds back the threads that a text names. It reports whether it names any.
func (f *file) hold(text []byte, offset int) bool {
	ids := named(string(text))
	for _, id := range ids {
		f.thread(id, offset, 0).held = true
	}
	return len(ids) > 0
}

func (t *threads) refuse(where string, size int64, err error) {
	t.wrong = append(t.wrong, line{where: where, size: size, err: err})
}

// thread returns the thread of an id, and notes that the file names it at an offset.
func (f *file) thread(id string, offset int, size int64) *thread {
	t := f.byID[id]
	if t == nil {
		t = &thread{id: id, where: f.at(offset), files: map[string]bool{}, seen: map[string]*threadMessage{}}
		f.byID[id] = t
		f.order = append(f.order, t)
	}
	t.size += size
	t.files[f.name] = true
	return t
}

// listObject is a page as the API gave it.
type listObject struct {
	more bool
}

// value reads a value at an offset of the file: an object of the API, or a list of such. in is the list that it stands
// in, or nil.
func (f *file) value(raw jsontext.Value, offset int, in *listObject) {
	switch {
	case !utf8.Valid(raw):
		f.hold(raw, offset)
		f.refuse(f.at(offset), int64(len(raw)), errors.New("not UTF-8: convert the file"))
	case raw.Kind() == '[':
		eachElement(raw, func(v jsontext.Value, at int) { f.value(v, offset+at, in) })
	case raw.Kind() == '{':
		f.object(raw, offset, in)
	default:
		f.refuse(f.at(offset), int64(len(raw)), errNoObject)
	}
}

var errNoObject = errors.New("not an object of the Assistants API: threads, messages, and lists of them are imported")

// object reads an object of the API.
func (f *file) object(raw jsontext.Value, offset int, in *listObject) {
	var o struct {
		Object  string
		HasMore bool `json:"has_more"`
	}
	_ = json.Unmarshal(raw, &o) // what has no such members is none of the objects that are known
	switch o.Object {
	case objectList:
		eachMember(raw, func(name string, v jsontext.Value, at int) {
			if name == "data" && v.Kind() == '[' {
				f.value(v, offset+at, &listObject{o.HasMore})
			}
		})
	case objectThread:
		t, err := parseThread(json.RawMessage(raw))
		if err != nil {
			f.refuse(f.at(offset), int64(len(raw)), err)
			return
		}
		f.leaveOut(raw, "id", "object", "created_at", "metadata")
		f.thread(t.ID, offset, int64(len(raw))).metadata = t.Metadata
	case objectMessage:
		f.message(raw, offset, in)
	default:
		f.refuse(f.at(offset), int64(len(raw)), errNoObject)
	}
}

// message reads a message of a thread. If it is wrong, nothing of its thread is imported.
func (f *file) message(raw jsontext.Value, offset int, in *listObject) {
	m, err := parseMessageObject(json.RawMessage(raw))
	var parsed messageIn
	if err == nil {
		parsed, err = m.chat()
	}
	if err == nil {
		err = f.thread(m.ThreadID, offset, int64(len(raw))).add(m, parsed, f.name, in)
	}
	switch {
	case err == nil:
		f.leaveOut(raw, membersOfMessage...)
	case m.ThreadID == "":
		f.refuse(f.at(offset), int64(len(raw)), err)
	default:
		f.thread(m.ThreadID, offset, 0).held = true
		f.refuse(f.at(offset), 0, fmt.Errorf("%w: nothing of its thread is imported", err))
	}
}

// eachElement calls use with the elements of a list, and with their offsets in it.
func eachElement(list jsontext.Value, use func(v jsontext.Value, at int)) {
	dec := decoder(list)
	_, _ = dec.ReadToken() // the list was read before
	for dec.PeekKind() != ']' {
		v, err := dec.ReadValue()
		if err != nil {
			return
		}
		use(v, int(dec.InputOffset())-len(v))
	}
}

// eachMember calls use with the members of an object, and with the offsets of their values in it.
func eachMember(object jsontext.Value, use func(name string, v jsontext.Value, at int)) {
	dec := decoder(object)
	_, _ = dec.ReadToken() // the object was read before
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return
		}
		member := name.String()
		v, err := dec.ReadValue()
		if err != nil {
			return
		}
		use(member, v, int(dec.InputOffset())-len(v))
	}
}
