package services

import (
	"strconv"
	"strings"
)

// PieceLengths returns the lengths in bytes of the pieces of an answer, in the order in which they came: "5 3 1:0 7."
// are two pieces of the part 0 and two of the part 1, and a dot marks one with an Item.
func PieceLengths(pieces []AnswerPiece) string {
	var b strings.Builder
	part := 0
	for n, p := range pieces {
		if n > 0 {
			b.WriteByte(' ')
		}
		if p.Part != part {
			part = p.Part
			b.WriteString(strconv.Itoa(part) + ":")
		}
		b.WriteString(strconv.Itoa(len(p.Text)))
		if p.Item != nil {
			b.WriteByte('.')
		}
	}
	return b.String()
}

// CutInPieces returns the pieces of an answer by their lengths. Without lengths, or where they are not those of the
// parts, each part is one piece.
func CutInPieces(parts []AnswerPart, lengths string) (pieces []AnswerPiece) {
	if pieces, fit := cut(parts, lengths); fit {
		return pieces
	}
	for n, p := range parts {
		pieces = append(pieces, AnswerPiece{Part: n, AnswerPart: p})
	}
	return pieces
}

func cut(parts []AnswerPart, lengths string) (pieces []AnswerPiece, fit bool) {
	left := make([]string, len(parts))
	for n, p := range parts {
		left[n] = p.Text
	}
	part, begun := 0, 0
	for one := range strings.FieldsSeq(lengths) {
		one, item := strings.CutSuffix(one, ".")
		if at, rest, other := strings.Cut(one, ":"); other {
			one = rest
			if part, _ = strconv.Atoi(at); part < 0 {
				return nil, false
			}
		}
		length, err := strconv.Atoi(one)
		if err != nil || part > begun || part >= len(parts) || length < 0 || length > len(left[part]) {
			return nil, false
		}
		p := AnswerPiece{Part: part, AnswerPart: parts[part]}
		p.Text, left[part] = left[part][:length], left[part][length:]
		if begun = max(begun, part+1); !item {
			p.Item = nil
		}
		pieces = append(pieces, p)
	}
	return pieces, begun == len(parts) && strings.Join(left, "") == ""
}
