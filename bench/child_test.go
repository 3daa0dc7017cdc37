package bench_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childMark is the first argument of a test binary that is to be a child. Its
// second is the kind, the rest are the kind's own.
const childMark = "bench-child"

// child is another process of this test binary that serves; the kind "index"
// does its work and ends. On standard output it tells its
// addresses on one line once it is ready, then for each line that it reads the
// CPU time that it has used so far, in nanoseconds. It ends with its standard
// input.
type child struct {
	addrs []string
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
}

// startChild starts a child and waits until it is ready. It ends with the test.
func startChild(tb testing.TB, kind string, args ...string) *child {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	c := &child{cmd: exec.Command(self, append([]string{childMark, kind}, args...)...)}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	c.out = bufio.NewReader(stdout)
	if err := c.cmd.Start(); err != nil {
		tb.Fatalf("start %s: %v", kind, err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(c.in.Close(), c.cmd.Wait()); err != nil {
			tb.Errorf("end %s: %v", kind, err)
		}
	})
	line, err := c.out.ReadString('\n')
	if err != nil {
		tb.Fatalf("%s tells no address: %v", kind, err)
	}
	c.addrs = strings.Fields(line)
	return c
}

// cpu is the CPU time, user and system, that the child has used since its start.
func (c *child) cpu() (time.Duration, error) {
	if _, err := c.in.Write([]byte("cpu\n")); err != nil {
		return 0, fmt.Errorf("ask for CPU time: %w", err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	return time.Duration(ns), nil
}

// childMain is the whole life of a child; it returns the exit code.
func childMain(kind string, args []string) int {
	var addrs []string
	var stop func() error
	var err error
	switch kind {
	case "index":
		return ended(kind, measureExact(os.Stdout, args[0], args[1]))
	case "publisher":
		addrs, stop, err = publishEvents(args)
	case "worker":
		addrs, stop, err = serveWorkers()
	case "relay":
		addrs, stop, err = serveRelay(args)
	case "router":
		addrs, stop, err = serveRouter("", args)
	case "selection":
		addrs, stop, err = serveSelection(args[0])
	case "router-with-module":
		addrs, stop, err = serveRouter(args[0], args[1:])
	default:
		err = errors.New("no such kind of child")
	}
	if err == nil {
		err = errors.Join(answer(addrs), stop())
	}
	return ended(kind, err)
}

// ended says what ended a child and returns the exit code.
func ended(kind string, err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", kind, err)
		return 1
	}
	return 0
}

// answer talks to the parent until that closes standard input.
func answer(addrs []string) error {
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintln(out, strings.Join(addrs, " "))
	if err := out.Flush(); err != nil {
		return fmt.Errorf("tell the addresses: %w", err)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Fprintln(out, cpuTime().Nanoseconds())
		if err := out.Flush(); err != nil {
			return fmt.Errorf("tell the CPU time: %w", err)
		}
	}
	return in.Err()
}

// cpuTime is the CPU time, user and system, of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it fails for bad arguments alone
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
