// Command extism runs a scorer in ways that are not the product's, for
// BenchmarkPolicyDecision to compare with: as an Extism plugin that talks JSON
// (extism), and as the product's own module called by the bare engine without
// fuel, pool, deadline or checks (bare). It is a module of its own so that the
// product depends neither on Extism nor on what draws the plot.
//
// On standard input come commands, one a line: "table JSON" sets the table and
// is answered with the picked row and a digest of the scores' bits, "round N"
// makes N decisions and is answered with the CPU time of the thread that made
// them, in nanoseconds. Both decide by a policy revision, so that clean-up and pick are
// the product's. It ends with its standard input.
//
//	extism WAY FILE
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/routerd/routerd/bench/extism/exchange"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "extism: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("usage: extism WAY FILE, where WAY is extism or bare")
	}
	wasm, err := os.ReadFile(args[1])
	if err != nil {
		return fmt.Errorf("read module: %w", err)
	}
	ctx := context.Background()
	var scorer policy.Scorer
	switch args[0] {
	case "extism":
		scorer, err = newPlugin(ctx, wasm)
	case "bare":
		scorer, err = newBare(ctx, wasm)
	default:
		err = errors.New("no such way")
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", args[0], args[1], err)
	}
	d, err := newDecider(ctx, scorer)
	if err != nil {
		return err
	}
	return errors.Join(d.answer(ctx, in, out), scorer.Close())
}

// decider makes decisions by one revision over one table.
type decider struct {
	revision *policy.Revision
	table    policy.Table
	decision policy.Decision
}

// source gives one stage, whatever its name.
type source struct{ policy.Scorer }

func (s source) Stage(context.Context, abi.Kind, string, json.RawMessage) (policy.Stage, string, error) {
	return s.Scorer, "", nil
}

func newDecider(ctx context.Context, s policy.Scorer) (*decider, error) {
	spec := policy.Spec{Scorers: []policy.ScorerSpec{{StageSpec: policy.StageSpec{Use: "module:compared"}}}}
	p, digests, err := policy.Compile(ctx, spec, source{s})
	if err != nil {
		return nil, fmt.Errorf("compile policy: %w", err)
	}
	return &decider{revision: policy.NewRevision("bench", 1, spec, p, digests)}, nil
}

// answer obeys commands until there are no more.
func (d *decider) answer(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		var text string
		var err error
		switch command {
		case "table":
			text, err = d.set(ctx, []byte(argument))
		case "round":
			text, err = d.round(ctx, argument)
		default:
			err = errors.New("no such command")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		fmt.Fprintln(out, text)
	}
	return lines.Err()
}

// set takes a table over and tells what is decided.
func (d *decider) set(ctx context.Context, b []byte) (string, error) {
	var t exchange.Table
	if err := json.Unmarshal(b, &t); err != nil {
		return "", fmt.Errorf("read table: %w", err)
	}
	d.table.Reset(t.Rows, d.revision.Columns())
	d.table.Seed = t.Seed
	for row := range d.table.Rows {
		d.table.Rows[row] = fleet.Worker{ID: fleet.WorkerID(row + 1)}
	}
	for name, v := range t.Fields {
		field, ok := abi.FieldByName(name)
		if !ok {
			return "", fmt.Errorf("no field %q", name)
		}
		d.table.SetField(field, v)
	}
	for name, values := range t.Columns {
		if cells := d.table.NamedCells(name); cells != nil {
			copy(cells.Fill(), values)
		}
	}
	if err := d.decide(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %x", d.decision.Row, exchange.Digest(d.decision.Totals)), nil
}

func (d *decider) round(ctx context.Context, argument string) (string, error) {
	n, err := strconv.Atoi(argument)
	if err != nil {
		return "", err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := threadTime()
	for range n {
		if err := d.decide(ctx); err != nil {
			return "", err
		}
	}
	return strconv.FormatInt((threadTime() - begun).Nanoseconds(), 10), nil
}

// decide makes one decision; one that its fallback made is an error.
func (d *decider) decide(ctx context.Context) error {
	if err := d.revision.Decide(ctx, &d.table, &d.decision); err != nil {
		return err
	}
	if d.decision.Fault != nil {
		return d.decision.Fault
	}
	if d.decision.By != policy.ByPolicy {
		return fmt.Errorf("decided by %s", d.decision.By)
	}
	return nil
}

// threadTime is the CPU time of this thread. The collector's threads are not in
// it, what the collector has the decision do itself is.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // it fails for bad arguments alone
	}
	return time.Duration(t.Nano())
}
