package client

import (
	"context"
	"io"
	"net/http"
)

// Person writes the zip of what is kept of a person. It has no deadline.
func (c *Client) Person(ctx context.Context, identityID string, to io.Writer) error {
	const what = "get a person's data"
	resp, err := c.open(ctx, http.MethodGet, "/identities/"+escape(identityID)+"/archive", nil, nil)
	if err != nil {
		return attempted(what, err)
	}
	_, err = io.Copy(to, resp.Body)
	_ = resp.Body.Close()
	return attempted(what, err)
}
