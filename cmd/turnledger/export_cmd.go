package main

type exportCmd struct {
	Identity string `help:"Whose turns." required:""`
	Output   string `help:"Write to a file instead of standard output." short:"o"`
	remote
}

// Run gives all turns of an identity as JSON Lines: folded from the log, with their
// positions and times, all versions and tombstones.
func (c *exportCmd) Run(e *env) error {
	r := replayCmd{Identity: &c.Identity, Output: c.Output, Format: "jsonl", Turns: true, remote: c.remote}
	return r.Run(e)
}
