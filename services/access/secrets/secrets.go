// Package secrets reads secrets from files, and prints settings without their secrets.
package secrets

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
)

// most bounds a file with a secret, in bytes.
const most = 64 << 10

// Read returns the only line of a file. Its errors name the file, but hold nothing of its content.
func Read(file string) (string, error) {
	f, err := os.Open(file) //nolint:gosec // the file that the operator named
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, most+1))
	value := strings.TrimRight(string(raw), "\r\n")
	switch {
	case err != nil:
		return "", err
	case len(raw) > most || strings.ContainsAny(value, "\r\n\x00"):
		return "", errors.New(file + " must hold one line")
	case value == "":
		return "", errors.New(file + " is empty")
	default:
		return value, nil
	}
}

// Drawn returns the secret that a file holds, which only the file's owner may read. It draws one if there is no file.
func Drawn(file string) (string, error) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		drawn := []byte(rand.Text() + rand.Text() + "\n")
		if err := renameio.WriteFile(file, drawn, 0o600, renameio.WithStaticPermissions(0o600)); err != nil {
			return "", err
		}
	case err != nil:
		return "", err
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("others than its owner may use %s: chmod 600 %s", file, file)
	}
	return Read(file)
}

// Placeholder returns a text that says whether a setting is set, and nothing of its value.
func Placeholder(s string) string {
	if s == "" {
		return ""
	}
	return "(set)"
}

// Hide returns an address or a URL without its password, and without parts that may be one.
func Hide(s string) string {
	if _, _, err := net.SplitHostPort(s); s == "" || err == nil && !strings.Contains(s, "/") {
		return s
	}
	notURL := func(one string) bool { return !strings.Contains(one, "://") }
	if several := strings.Split(s, ","); len(several) > 1 && !slices.ContainsFunc(several, notURL) {
		for i, one := range several { // servers of a cluster
			several[i] = Hide(one)
		}
		return strings.Join(several, ",")
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Opaque != "" || strings.Contains(u.Path, "@") {
		return "(set)" // for example a PostgreSQL connection string of keywords
	}
	postgres := u.Scheme == "postgres" || u.Scheme == "postgresql"
	q := u.Query()
	for name := range q {
		if !postgres || strings.Contains(name, "password") { // a model's endpoint may take its key as a parameter
			q.Set(name, "xxxxx")
		}
	}
	u.RawQuery = q.Encode()
	if _, ok := u.User.Password(); u.User != nil && !ok && !postgres {
		u.User = url.User("xxxxx") // a token
	}
	return u.Redacted()
}
