package backup

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Place says where a backup is kept: Name is a folder, or s3://bucket/prefix in the store at a URL.
type Place struct{ Name, Endpoint, Region, Spool string }

// ErrPlace says that a place is malformed.
var ErrPlace = errors.New("want s3://bucket/prefix, and --endpoint https://host")

// Open returns the store at a place; it does no I/O. It looks for S3 credentials where the S3 tools do.
func (p Place) Open() (Store, error) {
	rest, remote := strings.CutPrefix(p.Name, "s3://")
	if !remote {
		return Folder{Dir: p.Name}, nil
	}
	bucket, prefix, _ := strings.Cut(rest, "/")
	at, err := url.Parse(p.Endpoint)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" || bucket == "" {
		return nil, ErrPlace
	}
	client, err := minio.New(at.Host, &minio.Options{
		Secure: at.Scheme == "https", Region: p.Region,
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("S3 at %s: %w", at.Host, err)
	}
	return &S3{bucket, prefix, p.Spool, client}, nil
}
