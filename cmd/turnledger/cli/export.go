package cli

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/services/client"
)

type exportCmd struct {
	Identity only   `help:"Whose turns." required:""`
	Folder   string `help:"Write all that is kept of the person into a new folder: conversations to read and for programs, receipts." placeholder:"DIR"`
	Output   string `help:"Write to a file instead of standard output." short:"o"`
	remote
}

// Run prints all turns of an identity as JSON Lines: folded from the log, with their positions and times, all versions
// and tombstones. With a folder, it writes what is kept of the person there.
func (c *exportCmd) Run(e *Env) error {
	if c.Folder == "" {
		r := replayCmd{Identity: c.Identity, Output: c.Output, Format: "jsonl", Turns: true, remote: c.remote}
		return r.Run(e)
	}
	if c.Output != "" {
		return fmt.Errorf("%w: choose --folder or -o", config.ErrUsage)
	}
	if err := os.Mkdir(c.Folder, 0o700); err != nil {
		return fmt.Errorf("--folder: %w (it is made anew, so that nothing else is in it)", err)
	}
	err := c.fill(e)
	if err != nil {
		err = errors.Join(err, os.RemoveAll(c.Folder))
	}
	return err
}

// fill unpacks a person's archive into the folder.
func (c *exportCmd) fill(e *Env) error {
	packed, err := os.OpenFile(filepath.Join(c.Folder, "archive.part"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = packed.Close() }()
	if err := os.Remove(packed.Name()); err != nil { // it is read by its handle
		return err
	}
	if err := c.dial(firstTries, func(s *client.Client) error {
		return c.explain(e.Ctx, s.Person(e.Ctx, string(c.Identity), packed))
	}); err != nil {
		return err
	}
	size, err := packed.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	all, err := zip.NewReader(packed, size)
	if err != nil {
		return fmt.Errorf("the server's answer was broken off: %w", err)
	}
	for _, f := range all.File {
		if err := c.unpack(f); err != nil {
			return err
		}
	}
	e.printErr("%s in %s", Counted(len(all.File), "file"), c.Folder)
	return nil
}

func (c *exportCmd) unpack(f *zip.File) error {
	if !filepath.IsLocal(f.Name) {
		return fmt.Errorf("%w: a file outside of the folder", client.ErrAnswer)
	}
	name := filepath.Join(c.Folder, filepath.FromSlash(f.Name))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	from, err := f.Open()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // in the folder of the user
	if err != nil {
		return errors.Join(err, from.Close())
	}
	_, err = io.Copy(to, from) //nolint:gosec // as long as what the server keeps of the person
	return errors.Join(err, from.Close(), to.Close())
}
