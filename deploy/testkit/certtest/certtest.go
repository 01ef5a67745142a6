// Package certtest makes certificates for a test.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates. Its files are in a folder of the test.
type Authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// File holds the authority's certificate, and so does Pool.
	File string
	Pool *x509.CertPool
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir(), Pool: x509.NewCertPool()}
	a.key = a.newKey()
	template := a.template("authority", 24*time.Hour)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.cert = a.sign(template, a.key, template, a.key)
	a.Pool.AddCert(a.cert)
	a.File = a.write("authority.pem", "CERTIFICATE", a.cert.Raw)
	return a
}

// Issue makes a certificate for this machine, and for clients named name. It returns the files of the certificate and
// of its key.
func (a *Authority) Issue(name string) (cert, key string) {
	a.t.Helper()
	return a.IssueFor(name, time.Hour)
}

// IssueFor makes a certificate that is valid for life.
func (a *Authority) IssueFor(name string, life time.Duration) (cert, key string) {
	a.t.Helper()
	k := a.newKey()
	c := a.sign(a.template(name, life), k, a.cert, a.key)
	der, err := x509.MarshalECPrivateKey(k)
	a.ok(err)
	return a.write(name+".pem", "CERTIFICATE", c.Raw), a.write(name+".key", "EC PRIVATE KEY", der)
}

// Client returns the TLS configuration of a client that trusts the authority.
func (a *Authority) Client() *tls.Config {
	return &tls.Config{RootCAs: a.Pool, MinVersion: tls.VersionTLS12}
}

func (a *Authority) ok(err error) {
	a.t.Helper()
	require.NoError(a.t, err)
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.ok(err)
	return k
}

func (a *Authority) template(name string, life time.Duration) *x509.Certificate {
	a.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	a.ok(err)
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(life),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func (a *Authority) sign(
	template *x509.Certificate, key *ecdsa.PrivateKey, by *x509.Certificate, with *ecdsa.PrivateKey,
) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), with)
	a.ok(err)
	c, err := x509.ParseCertificate(der)
	a.ok(err)
	return c
}

func (a *Authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	file := filepath.Join(a.dir, name)
	a.ok(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}
