package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program that was started for the comparison.
type process struct {
	cmd *exec.Cmd
	log string
}

// begin starts a program whose output goes to a file in dir.
func begin(dir string, env []string, name string, args ...string) (*process, error) {
	log := filepath.Join(dir, filepath.Base(name)+".log")
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &process{cmd: cmd, log: log}, nil
}

func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }() // the signal ends it, which Wait reports as an error
	select {
	case err := <-done:
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			return err
		}
		return nil
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("%s did not stop within a minute", p.cmd.Path)
	}
}

// children maps each process to the processes that it started.
func children() map[int][]int {
	kids := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		fields, err := stat(path)
		if err != nil {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		kids[parent] = append(kids[parent], pid)
	}
	return kids
}

// stat returns the fields of a /proc/PID/stat from the third on (state, ppid, …; see proc(5)).
func stat(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	_, rest, ok := strings.Cut(string(text), ") ")
	if !ok {
		return nil, errors.New("not a stat file")
	}
	return strings.Fields(rest), nil
}

// processor returns the processor time of a process and its descendants, including descendants that have ended.
func processor(pid int) time.Duration {
	kids := children()
	var all time.Duration
	var walk func(int)
	walk = func(pid int) {
		all += ticks(pid, 4)
		for _, k := range kids[pid] {
			walk(k)
		}
	}
	walk(pid)
	return all
}

// ticks returns the first n of the times of a process: utime, stime, and those of its ended children, cutime, cstime.
func ticks(pid, n int) time.Duration {
	fields, err := stat(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	var all int64
	for _, f := range fields[11 : 11+n] {
		t, _ := strconv.ParseInt(f, 10, 64)
		all += t
	}
	return time.Duration(all) * (time.Second / 100) // USER_HZ is 100 on every Linux
}

// peak returns the highest memory of a process so far (VmHWM), in bytes.
func peak(pid int) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// freePort returns an unused address on loopback.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
