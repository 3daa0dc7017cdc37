package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/routerd/routerd/plugins/abi"
)

// Limits of a compile child.
const (
	childCPU    = 20 * time.Second
	childData   = 1 << 30 // bytes
	childWall   = 60 * time.Second
	childInput  = 64 << 20 // bytes of one module form
	childAnswer = 64 << 10 // bytes
)

// childNoFolder is a child's exit code when its folder cannot be written.
const childNoFolder = 3

// childCommand is the hidden subcommand that makes a process a compile child.
const childCommand = "compile-module"

// childAnswerMark starts the answer, so that what a test binary prints beside
// it does no harm.
const childAnswerMark = "\x00compiled\x00"

// Child compiles in a child process: the same binary under a hidden subcommand
// with limits on CPU time and memory, so that a compile bomb ends there. One at
// a time; the others wait. It needs a main that calls IsCompileChild first.
type Child struct {
	exe  string
	wall time.Duration
	turn chan struct{} // capacity 1: holds a token while a child runs
}

var _ Compiler = (*Child)(nil)

// NewChild makes a Child that executes the running binary.
func NewChild() (*Child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own binary: %w", err)
	}
	return &Child{exe: exe, wall: childWall, turn: make(chan struct{}, 1)}, nil
}

// Compile runs one child and waits for it; ctx ends the wait for a turn and the
// child.
func (c *Child) Compile(ctx context.Context, original, rewritten []byte, dir string) error {
	if dir == "" {
		return errors.New("compile in a child: no cache folder")
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return fmt.Errorf("wait for the compiler: %w", context.Cause(ctx))
	}
	run, cancel := context.WithTimeout(ctx, c.wall)
	defer cancel()
	cmd := exec.CommandContext(run, c.exe, childCommand, dir)
	// No environment: nothing of the daemon's reaches the child.
	cmd.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=none"}
	cmd.Stdin = io.MultiReader(framed(original), framed(rewritten))
	var answer, noise limited
	answer.max, noise.max = childAnswer, childAnswer
	cmd.Stdout, cmd.Stderr = &answer, &noise
	dieWithParent(cmd)
	// The kernel takes the end of the thread that started the child for the
	// parent's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start compile child: %w", err)
	}
	stop := watchMemory(cmd.Process, childData)
	err := cmd.Wait()
	stop()
	return c.verdict(ctx, run, err, answer.String(), noise.String())
}

// verdict turns what the child left into an error.
func (c *Child) verdict(ctx, run context.Context, err error, answer, noise string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("compile: %w", context.Cause(ctx))
	}
	allowed := fmt.Sprintf("%s of CPU time, %s in all, %d MiB of memory", childCPU, c.wall, childData>>20)
	if run.Err() != nil {
		return refuse(StepCompile, abi.ECompileLimit, "the compiler was still running after "+c.wall.String(), allowed)
	}
	if _, text, ok := strings.Cut(answer, childAnswerMark); ok {
		var e *LoadError
		if jerr := json.NewDecoder(strings.NewReader(text)).Decode(&e); jerr == nil {
			if e == nil {
				return nil
			}
			return e
		}
	}
	if err == nil {
		err = errors.New("no answer")
	}
	if outOfMemory(noise) {
		return refuse(StepCompile, abi.ECompileLimit, "the compiler ran out of memory", allowed)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == childNoFolder {
		return fmt.Errorf("%w: the compiler said: %s", ErrCompiledCache, clip(strings.TrimSpace(noise), maxEngineText))
	}
	if errors.As(err, &exit) && !exit.Exited() {
		return refuse(StepCompile, abi.ECompileLimit, "the compiler was killed: "+exit.String(), allowed)
	}
	return refuse(StepCompile, abi.ECompile, clip(err.Error()+": "+noise, maxEngineText), "a module that the engine compiles")
}

func outOfMemory(noise string) bool {
	return strings.Contains(noise, "out of memory") || strings.Contains(noise, "cannot allocate memory")
}

// IsCompileChild tells whether this process was started to compile one module.
// A main asks it before anything else and, when true, exits with what
// CompileChildMain returns.
func IsCompileChild(args []string) bool { return len(args) == 3 && args[1] == childCommand }

// CompileChildMain is the whole life of a compile child: it limits itself,
// reads the original and the rewritten module from in, validates the first,
// compiles the second into the folder that args names and answers on out. It
// returns the exit code.
func CompileChildMain(args []string, in io.Reader, out io.Writer) int {
	if err := limitSelf(childCPU, childData); err != nil {
		fmt.Fprintln(os.Stderr, "limit the compile child:", err)
		return 1
	}
	runtime.GOMAXPROCS(1)
	debug.SetMemoryLimit(childData * 3 / 4)
	return compileChild(args, in, out)
}

// compileChild is a child's work, without its limits.
func compileChild(args []string, in io.Reader, out io.Writer) int {
	original, err := readFramed(in)
	if err != nil {
		fmt.Fprintln(os.Stderr, "read original module:", err)
		return 1
	}
	rewritten, err := readFramed(in)
	if err != nil {
		fmt.Fprintln(os.Stderr, "read rewritten module:", err)
		return 1
	}
	var refused *LoadError
	if err := (InProcess{}).Compile(context.Background(), original, rewritten, args[2]); err != nil && !errors.As(err, &refused) {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, ErrCompiledCache) {
			return childNoFolder
		}
		return 1
	}
	b, err := json.Marshal(refused)
	if err != nil {
		return 1
	}
	if _, err := fmt.Fprintf(out, "%s%s\n", childAnswerMark, b); err != nil {
		return 1
	}
	return 0
}

// framed is a module with its length in front.
func framed(b []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(binary.LittleEndian.AppendUint64(nil, uint64(len(b)))), bytes.NewReader(b))
}

func readFramed(r io.Reader) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n > childInput {
		return nil, fmt.Errorf("module of %d bytes, at most %d", n, childInput)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// limited keeps the first max bytes that are written to it.
type limited struct {
	bytes.Buffer
	max int
}

// Write never fails: what is too much is dropped.
func (l *limited) Write(b []byte) (int, error) {
	keep := min(len(b), l.max-l.Len())
	_, err := l.Buffer.Write(b[:keep])
	return len(b), err
}

// RunCompileChild ends this process when it was started as a compile child; a
// main calls it before anything else.
func RunCompileChild() {
	if IsCompileChild(os.Args) {
		os.Exit(CompileChildMain(os.Args, os.Stdin, os.Stdout))
	}
}
