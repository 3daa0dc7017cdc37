package bench_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// outsider is a way that is another program's: bench/extism, which says what it
// is asked and what it answers.
type outsider struct {
	in  io.WriteCloser
	out *bufio.Reader
}

var _ way = (*outsider)(nil)

// startOutsider starts one. It ends with the test.
func startOutsider(tb testing.TB, program string, args ...string) *outsider {
	tb.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("start %s: %v", program, err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			tb.Errorf("end %s %s: %v", program, strings.Join(args, " "), err)
		}
	})
	return &outsider{in, bufio.NewReader(out)}
}

func (o *outsider) ask(b *testing.B, command, argument string) string {
	b.Helper()
	if _, err := fmt.Fprintln(o.in, command, argument); err != nil {
		b.Fatalf("%s: %v", command, err)
	}
	line, err := o.out.ReadString('\n')
	if err != nil {
		b.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSpace(line)
}

func (o *outsider) set(b *testing.B, t *policy.Table) (won outcome) {
	b.Helper()
	set := t.Set()
	said := struct {
		Rows    int                  `json:"rows"`
		Seed    uint64               `json:"seed"`
		Fields  map[string]float64   `json:"fields"`
		Columns map[string][]float64 `json:"columns"`
	}{t.Len(), t.Seed, map[string]float64{}, map[string][]float64{}}
	for _, f := range []abi.Field{abi.FieldISLBlocks, abi.FieldISLTokens, abi.FieldBlockSize} {
		said.Fields[f.String()] = t.Field(f)
	}
	for _, name := range set.Names() {
		said.Columns[name] = t.Named(name)
	}
	text, err := json.Marshal(said)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Sscanf(o.ask(b, "table", string(text)), "%d %x", &won.row, &won.scores); err != nil {
		b.Fatalf("read what was decided: %v", err)
	}
	return won
}

func (o *outsider) decide(b *testing.B, n int) time.Duration {
	b.Helper()
	ns, err := strconv.ParseInt(o.ask(b, "round", strconv.Itoa(n)), 10, 64)
	if err != nil {
		b.Fatalf("read CPU time: %v", err)
	}
	return time.Duration(ns)
}

func (o *outsider) fuel() uint64 { return 0 }

// digest is one number for the bits of many.
func digest(values []float64) uint64 {
	h := fnv.New64a()
	for _, v := range values {
		bits := math.Float64bits(v)
		var b [8]byte
		for i := range b {
			b[i] = byte(bits >> (8 * i))
		}
		h.Write(b[:])
	}
	return h.Sum64()
}
