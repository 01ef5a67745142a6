package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/services/access/certfile"
)

// tlsConfig names the files of certificates, keys and credentials. PostgreSQL takes its
// own from its URL (sslmode, sslrootcert, sslcert, sslkey).
type tlsConfig struct {
	TLSCert   string `name:"tls-cert" help:"Certificate of the HTTP API, a PEM file; with it the API speaks HTTPS only." type:"path" env:"TURNLEDGER_TLS_CERT"`
	TLSKey    string `name:"tls-key" help:"The file of its private key." type:"path" env:"TURNLEDGER_TLS_KEY"`
	NATSCreds string `name:"nats-creds" help:"Credentials for an outside NATS, a .creds file." type:"path" env:"TURNLEDGER_NATS_CREDS"`
	NATSCA    string `name:"nats-ca" help:"Authorities, a PEM file: of an outside NATS, or of those who may connect to the listener of the embedded one." type:"path" env:"TURNLEDGER_NATS_CA"`
	NATSCert  string `name:"nats-cert" help:"What this process shows itself with over NATS, a PEM file: to an outside NATS, or as the listener of the embedded one." type:"path" env:"TURNLEDGER_NATS_CERT"`
	NATSKey   string `name:"nats-key" help:"The file of its private key." type:"path" env:"TURNLEDGER_NATS_KEY"`
	RedisCA   string `name:"redis-ca" help:"Authorities of Redis (rediss://), a PEM file." type:"path" env:"TURNLEDGER_REDIS_CA"`
}

func (c Config) validateTLS(complain func(name, format string, args ...any)) {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		complain("TURNLEDGER_TLS_CERT", "and TURNLEDGER_TLS_KEY are files that are needed together")
	}
	if (c.NATSCert == "") != (c.NATSKey == "") {
		complain("TURNLEDGER_NATS_CERT", "and TURNLEDGER_NATS_KEY are files that are needed together")
	}
	if c.NATSCreds != "" && c.NATSURL == "" {
		complain("TURNLEDGER_NATS_CREDS", "is for an outside NATS: set TURNLEDGER_NATS_URL, or unset it")
	}
	if c.NATSURL == "" && c.NATSCert == "" && c.NATSCA != "" {
		complain("TURNLEDGER_NATS_CA", "without TURNLEDGER_NATS_URL is about who may connect: set TURNLEDGER_NATS_CERT and TURNLEDGER_NATS_KEY, too, or unset it")
	}
	if c.NATSURL == "" && c.NATSListen == "" && c.NATSCert != "" {
		complain("TURNLEDGER_NATS_CERT", "has nobody to be shown to: set TURNLEDGER_NATS_LISTEN or TURNLEDGER_NATS_URL, or unset it")
	}
	encrypted := strings.HasPrefix(c.RedisURL, "rediss://") || strings.HasPrefix(c.RecentShadow, "rediss://")
	if c.RedisCA != "" && !encrypted {
		complain("TURNLEDGER_REDIS_CA", "is for TURNLEDGER_REDIS_URL=rediss://…")
	}
}

func (c tlsConfig) rows() []setting {
	return []setting{
		{"TURNLEDGER_TLS_CERT", c.TLSCert},
		{"TURNLEDGER_TLS_KEY", c.TLSKey},
		{"TURNLEDGER_NATS_CREDS", c.NATSCreds},
		{"TURNLEDGER_NATS_CA", c.NATSCA},
		{"TURNLEDGER_NATS_CERT", c.NATSCert},
		{"TURNLEDGER_NATS_KEY", c.NATSKey},
		{"TURNLEDGER_REDIS_CA", c.RedisCA},
	}
}

// scheme of the API's address.
func (c tlsConfig) scheme() string {
	if c.TLSCert != "" {
		return "https"
	}
	return "http"
}

// openPair reads a certificate; nil where none is configured.
func openPair(name, cert, key string, logger *slog.Logger) (*certfile.Pair, error) {
	if cert == "" {
		return nil, nil //nolint:nilnil // none is configured
	}
	p, err := certfile.Open(certfile.Config{Cert: cert, Key: key, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUsage, name, err)
	}
	return p, nil
}

// openAuthorities reads the certificates of authorities; nil where none are configured:
// then the system's count.
func openAuthorities(name, file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // none are configured
	}
	pool, err := certfile.Authorities(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUsage, name, err)
	}
	return pool, nil
}

// natsListenerTLS is what the embedded server's listener shows, and whom it lets in; nil
// where it speaks in clear.
func (c tlsConfig) natsListenerTLS(pair *certfile.Pair) (*tls.Config, error) {
	if pair == nil {
		return nil, nil //nolint:nilnil // in clear
	}
	t := pair.Server()
	clients, err := openAuthorities("TURNLEDGER_NATS_CA", c.NATSCA)
	if err == nil && clients != nil {
		t.ClientCAs, t.ClientAuth = clients, tls.RequireAndVerifyClientCert
	}
	return t, err
}

// natsClient is how an outside NATS is called. Credentials and certificate are read again
// for each connection.
func (c tlsConfig) natsClient() []nats.Option {
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
