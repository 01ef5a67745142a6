package message

import (
	"encoding/base64"
	"regexp"
	"strings"
)

// imageStart matches the beginning of base64 image data in a text: a data URL, whose slashes may be escaped as in JSON,
// or without a data URL the first bytes of a PNG, JPEG, GIF, WebP, TIFF, AVIF or HEIC.
var imageStart = regexp.MustCompile(`(?i:data:image\\?/[a-z0-9.+-]+(?:; ?[a-z0-9._"=-]+)*; ?base64,)` +
	`|iVBORw0KGgo|\\?/9j\\?/|R0lGOD[dl]h|UklGR[A-Za-z0-9+/_-]{6}XRUJQ|SUkqA|AAAA[A-Za-z0-9+/_-]{4}ZnR5cG`)

// leastImage is how many base64 characters in a row count as image data without a data URL.
const leastImage = 64

// mayHoldImage reports false for texts that imageStart can't match. It is quick, and false for most texts.
func mayHoldImage(s string) bool {
	for _, magic := range [...]string{"iVBORw0KGgo", "/9j", "R0lGOD", "UklGR", "SUkqA", "ZnR5cG"} {
		if strings.Contains(s, magic) {
			return true
		}
	}
	return containsFold(s, "base64,")
}

// containsFold reports whether s holds an ASCII text in any case.
func containsFold(s, text string) bool {
	for i := 0; i+len(text) <= len(s); i++ {
		if s[i]|0x20 == text[0]|0x20 && strings.EqualFold(s[i:i+len(text)], text) {
			return true
		}
	}
	return false
}

// CleanText replaces inline base64 images by ImageText.
func CleanText(s string) string {
	if !mayHoldImage(s) {
		return s
	}
	var out strings.Builder
	rest := 0
	for at := 0; ; {
		found := imageStart.FindStringIndex(s[at:])
		if found == nil {
			break
		}
		from, data := at+found[0], at+found[1]
		url := s[from]|0x20 == 'd'
		end := data
		if url || !inWord(s[:from]) {
			end += base64Run(s[data:])
		}
		if end == data || !url && end-from < leastImage {
			at = data // no image data after all
			continue
		}
		out.WriteString(s[rest:from])
		out.WriteString(ImageText)
		at, rest = end, end
	}
	if rest == 0 {
		return s
	}
	out.WriteString(s[rest:])
	return out.String()
}

// inWord reports whether the text before a match ends in base64, so that the match lies inside a longer run of base64.
func inWord(before string) bool {
	n := len(before)
	if n == 0 || !isBase64(before[n-1]) {
		return false
	}
	return n < 2 || before[n-2] != '\\' // the n of an escaped line feed in JSON is no base64
}

// wrapped is the shortest line that counts as wrapped base64 (64 and 76 characters are usual).
const wrapped = 48

// base64Run returns the length of the base64 at the beginning of a text, across line breaks if it is wrapped.
func base64Run(s string) int {
	end, line := 0, 0
	for {
		n := lineRun(s[end:])
		end += n
		line += n
		brk := lineBreak(s[end:])
		if brk == 0 || line < wrapped {
			return end
		}
		next := lineRun(s[end+brk:])
		after := end + brk + next
		whole := after == len(s) || lineBreak(s[after:]) > 0 || strings.IndexByte("\"')>`,;", s[after]) >= 0
		if next == 0 || next < wrapped && !whole {
			return end
		}
		end, line = end+brk, 0
	}
}

// lineRun returns the length of the base64 on one line. JSON texts escape slashes.
func lineRun(s string) int {
	i := 0
	for i < len(s) {
		switch {
		case isBase64(s[i]):
			i++
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == '/':
			i += 2
		default:
			return i
		}
	}
	return i
}

func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("+/=_-%", c) >= 0
}

// lineBreak returns the length of a line break, plain or escaped, with the blanks after it.
func lineBreak(s string) int {
	n := 0
	for _, brk := range [...]string{"\r\n", "\n", `\r\n`, `\n`} {
		if strings.HasPrefix(s, brk) {
			n = len(brk)
			break
		}
	}
	for n > 0 && n < len(s) && (s[n] == ' ' || s[n] == '\t') {
		n++
	}
	return n
}

// isBlob reports whether a text in the place of image data is base64 and nothing else. A digest in hex is not.
func isBlob(s string) bool {
	s = strings.Join(strings.Fields(s), "")
	if len(s) < leastImage || strings.Trim(s, "0123456789abcdefABCDEF") == "" {
		return false
	}
	s = strings.TrimRight(s, "=")
	for _, enc := range [...]*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if _, err := enc.DecodeString(s); err == nil {
			return true
		}
	}
	return false
}
