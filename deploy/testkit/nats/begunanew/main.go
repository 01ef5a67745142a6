// Command begunanew is a NATS server that restarts JetStream for each line that it reads, as the embedded server does
// after a full disk. A line holds how many milliseconds JetStream stays away. It is a process of its own, since
// nats-server has data races there, which would fail a test with the race detector.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves the store folder until its input ends. It prints its URL, and a line after each restart.
func run(dir string) error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
		MaxPayload: 8 << 20,
	})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(hang.Limit) {
		return fmt.Errorf("the server on %s did not get ready", dir)
	}
	fmt.Println(s.ClientURL())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		away, err := strconv.Atoi(lines.Text())
		if err != nil {
			return err
		}
		if err := s.ShutdownJetStream(); err != nil {
			return err
		}
		<-time.After(time.Duration(away) * time.Millisecond)
		if err := s.EnableJetStream(&server.JetStreamConfig{StoreDir: dir}); err != nil {
			return err
		}
		fmt.Println("begun")
	}
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
