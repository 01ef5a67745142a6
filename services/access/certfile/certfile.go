// Package certfile keeps a TLS certificate that is stored in two files. It reads them again when they change, so that a
// certificate can be renewed without a restart.
package certfile

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/turnledger/turnledger/services/access/reread"
)

// Config of a Pair.
type Config struct {
	// Cert holds the certificate and the intermediate certificates up to its authority, Key its private key; both PEM.
	Cert, Key string
	// Every is the pause between two looks at the files; 1 s by default.
	Every  time.Duration
	Logger *slog.Logger
}

// Pair is a certificate with its key. Safe for concurrent use.
type Pair struct {
	// Files holds the certificate. While the files can't be used, for example because only one of the two was replaced,
	// the certificate that was read last stays in use.
	reread.Files[*tls.Certificate]
}

// soon is how long before a certificate's end warnings begin: by then it should have been renewed.
const soon = 7 * 24 * time.Hour

// Open reads the files. Its errors name the files but hold nothing of their content. It returns nil if no file is
// named.
func Open(cfg Config) (*Pair, error) {
	if cfg.Cert == "" {
		return nil, nil //nolint:nilnil // none is configured
	}
	logger := cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	var warned time.Time
	p := &Pair{reread.Files[*tls.Certificate]{
		Paths: []string{cfg.Cert, cfg.Key}, Every: cfg.Every, Make: cfg.certificate,
		Looked: func(c *tls.Certificate) {
			if time.Until(c.Leaf.NotAfter) < soon && time.Since(warned) > time.Hour {
				warned = time.Now()
				logger.Warn("the certificate ends soon: renew it, and it is read again by itself",
					"file", cfg.Cert, "not_after", c.Leaf.NotAfter)
			}
		},
		Failed: func(err error) {
			logger.Error("the certificate can't be read again; the one that was read last goes on to be shown",
				"err", err)
		},
		Changed: func(c *tls.Certificate) {
			logger.Info("the certificate was read again", "file", cfg.Cert, "not_after", c.Leaf.NotAfter)
		},
	}}
	return p, p.Files.Open()
}

// certificate reads the contents of the two files.
func (cfg Config) certificate(raw [][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(raw[0], raw[1])
	if err != nil {
		return nil, fmt.Errorf("%s and %s are no certificate (PEM) with its key", cfg.Cert, cfg.Key)
	}
	if ends := pair.Leaf.NotAfter; !time.Now().Before(ends) {
		return nil, fmt.Errorf("the certificate in %s ended at %s: renew it", cfg.Cert, ends.Format(time.RFC3339))
	}
	return &pair, nil
}

// Server returns the TLS configuration of a listener with this certificate: TLS 1.2 or later.
func (p *Pair) Server() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.Value(), nil },
	}
}

// Client returns the TLS configuration of a client that shows this certificate if the server asks for one.
func (p *Pair) Client() *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.Value(), nil },
	}
}

// Authorities reads the certificates of authorities (PEM). It returns nil if no file is named.
func Authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // none are configured
	}
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
