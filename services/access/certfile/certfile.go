// Package certfile keeps a TLS certificate that is two files, and reads them again when
// they change, so that a certificate is renewed without a restart.
package certfile

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/turnledger/turnledger/services/access/reread"
)

// Config of a Pair.
type Config struct {
	// Cert holds the certificate and those between it and its authority, Key its private
	// key; both PEM.
	Cert, Key string
	// Every so often the files are looked at; 1 s by default.
	Every  time.Duration
	Now    func() time.Time
	Logger *slog.Logger
}

// Pair is a certificate with its key. Safe for concurrent use.
type Pair struct {
	cfg  Config
	held atomic.Pointer[tls.Certificate]
	raw  [2][]byte // what was read last; for the goroutine that reads
}

// Open reads the files. Its errors name them and hold nothing of them.
func Open(cfg Config) (*Pair, error) {
	if cfg.Every == 0 {
		cfg.Every = time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Pair{cfg: cfg}
	if _, err := p.reload(); err != nil {
		return nil, err
	}
	return p, nil
}

// reload reads the files and tells whether they have changed.
func (p *Pair) reload() (bool, error) {
	cert, err := os.ReadFile(p.cfg.Cert)
	if err != nil {
		return false, err
	}
	key, err := os.ReadFile(p.cfg.Key)
	if err != nil {
		return false, err
	}
	if bytes.Equal(cert, p.raw[0]) && bytes.Equal(key, p.raw[1]) {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("%s and %s are no certificate (PEM) with its key", p.cfg.Cert, p.cfg.Key)
	}
	if !p.cfg.Now().Before(pair.Leaf.NotAfter) {
		return false, fmt.Errorf("the certificate in %s ended at %s: renew it", p.cfg.Cert, pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	p.raw = [2][]byte{cert, key}
	p.held.Store(&pair)
	return true, nil
}

// soon is how long before its end a certificate is spoken of: by then whatever renews it
// should have.
const soon = 7 * 24 * time.Hour

// Run looks at the files until ctx ends, and then returns nil. While they can't be used,
// such as when only one of the two was replaced, the certificate that was read last goes
// on to be shown.
func (p *Pair) Run(ctx context.Context) error {
	var warned time.Time
	return reread.Run(ctx, p.cfg.Every, reread.What{
		Looked: func() {
			ends, now := p.held.Load().Leaf.NotAfter, p.cfg.Now()
			if ends.Sub(now) < soon && now.Sub(warned) > time.Hour {
				warned = now
				p.cfg.Logger.Warn("the certificate ends soon: renew it, and it is read again by itself", "file", p.cfg.Cert, "not_after", ends)
			}
		},
		Reload: p.reload,
		Failed: func(err error) {
			p.cfg.Logger.Error("the certificate can't be read again; the one that was read last goes on to be shown", "err", err)
		},
		Changed: func() {
			p.cfg.Logger.Info("the certificate was read again", "file", p.cfg.Cert, "not_after", p.held.Load().Leaf.NotAfter)
		},
	})
}

// Server is what a listener shows itself with: TLS 1.2 or later.
func (p *Pair) Server() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.held.Load(), nil },
	}
}

// Client is what a client shows itself with where it is asked.
func (p *Pair) Client() *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.held.Load(), nil },
	}
}

// Authorities reads the certificates of authorities (PEM).
func Authorities(file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file) //nolint:gosec // the file that the operator named
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, errors.New(file + " holds no certificate (PEM)")
	}
	return pool, nil
}
