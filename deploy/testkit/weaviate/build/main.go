// Command build sees to it that this machine has the Weaviate that tests run.
package main

import (
	"context"
	"fmt"
	"os"

	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
)

func main() {
	_, err := weaviatetest.Program(context.Background(), os.Stdout)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
