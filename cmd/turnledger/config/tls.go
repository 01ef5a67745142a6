package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/services/access/certfile"
)

// certificates names the files of certificates, keys and credentials. PostgreSQL's are in its URL (sslmode,
// sslrootcert, sslcert, sslkey).
type certificates struct {
	TLSCert    string `name:"tls-cert" help:"Certificate of the HTTP API, a PEM file; with it the API speaks HTTPS only." type:"path" env:"TURNLEDGER_TLS_CERT"`
	TLSKey     string `name:"tls-key" help:"The file of its private key." type:"path" env:"TURNLEDGER_TLS_KEY"`
	NATSClient `embed:""`
	RedisCA    string `name:"redis-ca" help:"Authorities of Redis (rediss://), a PEM file." type:"path" env:"TURNLEDGER_REDIS_CA"`
}

// NATSClient names the files with which a process shows itself over NATS.
type NATSClient struct {
	NATSCreds string `name:"nats-creds" help:"Credentials for an outside NATS, a .creds file." type:"path" env:"TURNLEDGER_NATS_CREDS"`
	NATSCA    string `name:"nats-ca" help:"Authorities, a PEM file: of an outside NATS, or of those who may connect to the listener of the embedded one." type:"path" env:"TURNLEDGER_NATS_CA"`
	NATSCert  string `name:"nats-cert" help:"What this process shows itself with over NATS, a PEM file: to an outside NATS, or as the listener of the embedded one." type:"path" env:"TURNLEDGER_NATS_CERT"`
	NATSKey   string `name:"nats-key" help:"The file of its private key." type:"path" env:"TURNLEDGER_NATS_KEY"`
}

func (c certificates) validate(no *complaints, all Config) {
	no.when((c.TLSCert == "") != (c.TLSKey == ""), "TLS_CERT",
		"and TURNLEDGER_TLS_KEY are files that are needed together")
	no.when((c.NATSCert == "") != (c.NATSKey == ""),
		"NATS_CERT", "and TURNLEDGER_NATS_KEY are files that are needed together")
	embedded := all.NATSURL == ""
	no.when(embedded && c.NATSCreds != "", "NATS_CREDS", "is for an outside NATS: set TURNLEDGER_NATS_URL, or unset it")
	no.when(embedded && c.NATSCert == "" && c.NATSCA != "", "NATS_CA", "without TURNLEDGER_NATS_URL is about who may "+
		"connect: set TURNLEDGER_NATS_CERT and TURNLEDGER_NATS_KEY, too, or unset it")
	no.when(embedded && all.NATSListen == "" && c.NATSCert != "", "NATS_CERT",
		"has nobody to be shown to: set TURNLEDGER_NATS_LISTEN or TURNLEDGER_NATS_URL, or unset it")
	encrypted := strings.HasPrefix(all.RedisURL, "rediss://") || strings.HasPrefix(all.RecentShadow, "rediss://")
	no.when(c.RedisCA != "" && !encrypted, "REDIS_CA", "is for TURNLEDGER_REDIS_URL=rediss://…")
}

// Scheme returns the scheme of the API's address.
func (c certificates) Scheme() string {
	if c.TLSCert != "" {
		return "https"
	}
	return "http"
}

// API returns the certificate of the API; nil if it speaks plain HTTP.
func (c certificates) API(logger *slog.Logger) (*certfile.Pair, error) {
	return pair("TURNLEDGER_TLS_CERT", c.TLSCert, c.TLSKey, logger)
}

// NATS returns the certificate of the embedded server's listener, and the TLS configuration that decides which clients
// it accepts; both are nil without TLS.
func (c certificates) NATS(logger *slog.Logger) (*certfile.Pair, *tls.Config, error) {
	p, err := pair("TURNLEDGER_NATS_CERT", c.NATSCert, c.NATSKey, logger)
	if p == nil || err != nil {
		return nil, nil, err
	}
	t := p.Server()
	clients, err := authorities("TURNLEDGER_NATS_CA", c.NATSCA)
	if clients != nil {
		t.ClientCAs, t.ClientAuth = clients, tls.RequireAndVerifyClientCert
	}
	return p, t, err
}

// Redis returns the authorities for Redis; nil for the system's.
func (c certificates) Redis() (*x509.CertPool, error) {
	return authorities("TURNLEDGER_REDIS_CA", c.RedisCA)
}

func pair(name, cert, key string, logger *slog.Logger) (*certfile.Pair, error) {
	p, err := certfile.Open(certfile.Config{Cert: cert, Key: key, Logger: logger})
	return p, wrong(name, err)
}

func authorities(name, file string) (*x509.CertPool, error) {
	pool, err := certfile.Authorities(file)
	return pool, wrong(name, err)
}

func wrong(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", ErrUsage, name, err)
	}
	return err
}

// Options returns the options for an outside NATS. Credentials and certificate are read again for each connection.
func (c NATSClient) Options() []nats.Option {
	var opts []nats.Option
	if c.NATSCreds != "" {
		opts = append(opts, nats.UserCredentials(c.NATSCreds))
	}
	if c.NATSCA != "" {
		opts = append(opts, nats.RootCAs(c.NATSCA))
	}
	if c.NATSCert != "" {
		opts = append(opts, nats.ClientCert(c.NATSCert, c.NATSKey))
	}
	return opts
}
