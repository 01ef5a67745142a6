package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// WhatIfQuery asks what models were told before the answers of Sessions, of those of an identity, or of all since a
// time, and what they would have been told with other settings. A setting's zero value leaves it as it was.
type WhatIfQuery struct {
	Sessions    []string  `json:"sessions,omitempty"`
	IdentityID  string    `json:"identity_id,omitempty"`
	Since       time.Time `json:"since,omitzero"`
	MaxTokens   int       `json:"max_tokens,omitempty"`
	MaxMessages int       `json:"max_messages,omitempty"`
	Summary     bool      `json:"summary,omitempty"`
	Memory      bool      `json:"memory,omitempty"`
	System      string    `json:"system,omitempty"`
}

// WhatIf is what a model was told before the answer of a turn, and would have been told. Told is same, assumed or part.
type WhatIf struct {
	SessionID  string   `json:"session_id"`
	TurnID     string   `json:"turn_id"`
	Position   string   `json:"position"`
	Told       string   `json:"told"`
	TokensTold int      `json:"tokens_told"`
	TokensIf   int      `json:"tokens_if"`
	TurnsTold  int      `json:"turns_told"`
	TurnsIf    int      `json:"turns_if"`
	LeftOut    []string `json:"left_out"`
	BroughtIn  []string `json:"brought_in"`
}

// WhatIfHeading is the heading of a table of rows, of which Cells are the cells.
const WhatIfHeading = "SESSION\tTURN\tTOLD\tTURNS\tIF\tLEFT OUT\tBROUGHT IN\tTOKENS\tIF"

// Cells returns the cells of a row in a table.
func (r WhatIf) Cells() []any {
	return []any{oneLine(r.SessionID, 40), r.TurnID, r.Told, r.TurnsTold, r.TurnsIf, len(r.LeftOut), len(r.BroughtIn),
		r.TokensTold, r.TokensIf}
}

// WhatIfTotal sums up.
type WhatIfTotal struct {
	Turns      int `json:"turns"`
	Same       int `json:"same"`
	Assumed    int `json:"assumed"`
	Part       int `json:"part"`
	TokensTold int `json:"tokens_told"`
	TokensIf   int `json:"tokens_if"`
	TurnsTold  int `json:"turns_told"`
	TurnsIf    int `json:"turns_if"`
	LeftOut    int `json:"left_out"`
	BroughtIn  int `json:"brought_in"`
}

// mostWhatIf bounds a line, which names at most as many turns as a prompt shows.
const mostWhatIf = 16 << 20

// WhatIf calls take with each row, and with the line in which the server sent it, and returns the total with its line.
// It has no deadline.
func (c *Client) WhatIf(
	ctx context.Context, q WhatIfQuery, take func(row WhatIf, line []byte) error,
) (total WhatIfTotal, last []byte, err error) {
	const what = "ask what if"
	body, err := json.Marshal(q)
	if err != nil {
		return total, nil, attempted(what, err)
	}
	resp, err := c.open(ctx, http.MethodPost, "/whatif", bytes.NewReader(body), http.Header{
		"Content-Type": {"application/json"},
	})
	if err != nil {
		return total, nil, attempted(what, err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, mostWhatIf)
	for lines.Scan() {
		var row struct {
			WhatIf
			Total   *WhatIfTotal
			Problem *Error
		}
		err := decode(lines.Bytes(), &row)
		if err == nil && row.Problem != nil {
			err = row.Problem
		}
		switch {
		case err != nil:
			return total, nil, attempted(what, err)
		case row.Total != nil:
			return *row.Total, bytes.Clone(lines.Bytes()), nil
		}
		if err := take(row.WhatIf, lines.Bytes()); err != nil {
			return total, nil, err
		}
	}
	err = lines.Err()
	if err == nil {
		err = fmt.Errorf("%w: it ended before its total", ErrAnswer)
	}
	return total, nil, attempted(what, err)
}
