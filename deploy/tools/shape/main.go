// Command shape measures the source of a checkout: how much code there is, how long its functions, files and lines are,
// and what is declared twice. It sets no limits: it is for comparing two runs, before and after a change. `make shape`
// runs it over this repository.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/turnledger/turnledger/deploy/tools/source"
)

func main() {
	asJSON := flag.Bool("json", false, "print JSON; the argument is the checkout to measure (.)")
	flag.Parse()
	dir := "."
	if flag.NArg() > 0 {
		dir = flag.Arg(0)
	}
	if err := run(dir, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "shape:", err)
		os.Exit(1)
	}
}

func run(dir string, asJSON bool) error {
	files, err := source.Read(dir)
	if err != nil {
		return err
	}
	shape := measure(files)
	if !asJSON {
		_, err := os.Stdout.WriteString(shape.table())
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(shape)
}
