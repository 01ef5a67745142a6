// Command build sees to it that this machine has the Weaviate that tests run.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/turnledger/turnledger/projections/index/weaviate/weaviatetest"
)

func main() {
	_, err := weaviatetest.Program(context.Background(), os.Stdout)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
