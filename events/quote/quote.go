// Package quote writes texts as JSON strings.
package quote

import (
	"math/bits"
	"unicode/utf8"
)

// Append appends s as a JSON string, byte for byte as jsontext.AppendQuote does. Bytes that are no UTF-8 become U+FFFD.
// Texts are mostly plain ASCII, which it looks at eight bytes at a time.
func Append(to []byte, s string) []byte {
	to = append(to, '"')
	for {
		n := plain(s)
		to = append(to, s[:n]...)
		if n == len(s) {
			return append(to, '"')
		}
		s = s[n:]
		if s[0] < utf8.RuneSelf {
			to, s = appendEscaped(to, s[0]), s[1:]
			continue
		}
		n = others(s)
		to = append(to, s[:n]...)
		if s = s[n:]; n == 0 {
			to, s = append(to, "\ufffd"...), s[1:]
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// plain returns how many bytes at the beginning of s stand for themselves, and are ASCII.
func plain(s string) (n int) {
	for ; len(s)-n >= 8; n += 8 {
		b := s[n : n+8]
		x := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		quotes, slashes := x^'"'*ones, x^'\\'*ones
		// A byte below 0x20, or 0 after the xor, borrows its high bit, and one beyond ASCII keeps it. Only bytes above
		// such a byte may have theirs without cause.
		if special := ((x - ' '*ones) | (quotes - ones) | (slashes - ones)) & highs; special != 0 {
			return n + bits.TrailingZeros64(special)/8
		}
	}
	for n < len(s) && s[n] >= ' ' && s[n] < utf8.RuneSelf && s[n] != '"' && s[n] != '\\' {
		n++
	}
	return n
}

// others returns how many bytes at the beginning of s are characters beyond ASCII.
func others(s string) (n int) {
	for n < len(s) && s[n] >= utf8.RuneSelf {
		_, size := utf8.DecodeRuneInString(s[n:])
		if size == 1 {
			break
		}
		n += size
	}
	return n
}

func appendEscaped(to []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(to, '\\', c)
	case '\b':
		return append(to, `\b`...)
	case '\f':
		return append(to, `\f`...)
	case '\n':
		return append(to, `\n`...)
	case '\r':
		return append(to, `\r`...)
	case '\t':
		return append(to, `\t`...)
	}
	const digits = "0123456789abcdef"
	return append(to, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
}
