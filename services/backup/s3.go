package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Config names a place in a store that speaks S3.
type S3Config struct {
	Endpoint       string // host:port
	Plain          bool   // HTTP without TLS
	Region         string
	Bucket, Prefix string
	Credentials    *credentials.Credentials
	Transport      http.RoundTripper // the library's own by default
	// Spool is a folder with room for the largest partition's copy, twice while one is
	// restored: a store may pause for longer than a server that copies waits.
	Spool string
}

// S3 is a Store in a bucket that is there.
type S3 struct {
	cfg    S3Config
	client *minio.Client
}

var _ Store = (*S3)(nil)

// NewS3 makes the store; it does no I/O.
func NewS3(cfg S3Config) (*S3, error) {
	client, err := minio.New(cfg.Endpoint, &minio.Options{Creds: cfg.Credentials, Secure: !cfg.Plain, Region: cfg.Region, Transport: cfg.Transport})
	if err != nil {
		return nil, fmt.Errorf("S3 at %s: %w", cfg.Endpoint, err)
	}
	return &S3{cfg, client}, nil
}

func (s *S3) key(name string) string { return path.Join(s.cfg.Prefix, name) }

// spool gives a file that is gone when it is closed.
func (s *S3) spool() (*os.File, error) {
	f, err := os.CreateTemp(s.cfg.Spool, "turnledger-backup-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// Put implements Store.
func (s *S3) Put(ctx context.Context, name string, from io.Reader) (err error) {
	defer wrap(&err, "keep "+name+" in bucket "+s.cfg.Bucket)
	f, err := s.spool()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	n, err := io.Copy(f, from)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = s.client.PutObject(
		ctx, s.cfg.Bucket, s.key(name), f, n, minio.PutObjectOptions{ContentType: "application/octet-stream"},
	)
	return err
}

// Open implements Store: the file is fetched whole.
func (s *S3) Open(ctx context.Context, name string) (_ *os.File, err error) {
	defer wrap(&err, "fetch "+name+" from bucket "+s.cfg.Bucket)
	from, err := s.client.GetObject(ctx, s.cfg.Bucket, s.key(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }()
	f, err := s.spool()
	if err != nil {
		return nil, err
	}
	if _, err = io.Copy(f, from); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if said := minio.ToErrorResponse(err); said.Code == minio.NoSuchKey {
		err = errors.Join(fs.ErrNotExist, err)
	}
	return nil, err
}
