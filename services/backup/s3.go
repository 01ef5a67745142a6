package backup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/minio/minio-go/v7"
)

// S3 is a Store in an existing bucket. The spool is a folder with room for the largest partition's copy, twice that
// during a restore. It is needed because a store may pause for longer than a copying server waits.
type S3 struct {
	bucket, prefix, spoolDir string
	client                   *minio.Client
}

var _ Store = (*S3)(nil)

func (s *S3) key(name string) string { return path.Join(s.prefix, name) }

// spool makes a temporary file without a name. The file vanishes when it is closed.
func (s *S3) spool() (*os.File, error) {
	f, err := os.CreateTemp(s.spoolDir, "turnledger-backup-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// Put implements Store.
func (s *S3) Put(ctx context.Context, name string, from io.Reader) (err error) {
	defer wrap(&err, "keep "+name+" in bucket "+s.bucket)
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
		ctx, s.bucket, s.key(name), f, n, minio.PutObjectOptions{ContentType: "application/octet-stream"},
	)
	return err
}

// Open implements Store. It downloads the whole file first.
func (s *S3) Open(ctx context.Context, name string) (_ *os.File, err error) {
	defer wrap(&err, "fetch "+name+" from bucket "+s.bucket)
	from, err := s.client.GetObject(ctx, s.bucket, s.key(name), minio.GetObjectOptions{})
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
	if response := minio.ToErrorResponse(err); response.Code == minio.NoSuchKey {
		err = errors.Join(fs.ErrNotExist, err)
	}
	return nil, err
}
