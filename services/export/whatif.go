package export

import (
	"errors"
	"os"
)

// WhatIfRow is what a model was told before the answer of a turn, and would have been told, as a row.
type WhatIfRow struct {
	SessionID  string   `parquet:"session_id,dict"`
	TurnID     string   `parquet:"turn_id"`
	Position   string   `parquet:"position"`
	Told       string   `parquet:"told,dict"`
	TokensTold int      `parquet:"tokens_told"`
	TokensIf   int      `parquet:"tokens_if"`
	TurnsTold  int      `parquet:"turns_told"`
	TurnsIf    int      `parquet:"turns_if"`
	LeftOut    []string `parquet:"left_out,list"`
	BroughtIn  []string `parquet:"brought_in,list"`
}

func (r WhatIfRow) size() int { return 128 + 40*(len(r.LeftOut)+len(r.BroughtIn)) }

// WhatIfs is a Parquet file of rows.
type WhatIfs struct {
	file  *File
	table Table[WhatIfRow]
}

// OpenWhatIf opens a file, which has a temporary name until it is complete.
func OpenWhatIf(path string) (*WhatIfs, error) {
	f := &File{final: path, flush: func() error { return nil }}
	if _, err := f.create(FileConfig{Path: path}); err != nil {
		return nil, err
	}
	table, err := newTable[WhatIfRow](Parquet, f.out, withHeader)
	if err != nil {
		return nil, errors.Join(err, f.Abandon())
	}
	f.closes = []func() error{table.Close}
	return &WhatIfs{f, table}, nil
}

// Write adds a row.
func (w *WhatIfs) Write(r WhatIfRow) error { return w.table.Write(r) }

// Close completes the file, or takes away what is not whole.
func (w *WhatIfs) Close(whole bool) error {
	if whole {
		return w.file.complete(nil)
	}
	err := w.file.end()
	if w.file.partial() {
		err = errors.Join(err, os.Remove(w.file.Name()))
	}
	return err
}
