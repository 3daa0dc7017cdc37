//go:build oracle

// Package oracle_test runs Dynamo's selection service and ours side by side, with
// the same script of random fleets, prompts, sessions, constraints and event
// streams, and fails where they differ in anything that is no named exception. The
// script comes from a seed. make oracle runs it in a network namespace of its own,
// for Dynamo's service listens on every interface.
package oracle_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"
)

// TestOracle compares ours with theirs over ORACLE_N fleets from ORACLE_SEED.
func TestOracle(t *testing.T) {
	p := pair{theirs: dynamo(t, "dynamo", 8092), ours: routerd(t, 8100), led: newLedger()}
	drive(t, p, amount(t, "ORACLE_FIRST", 1), amount(t, "ORACLE_N", 1000))
	fmt.Printf("%d fleets, seed %d\n", amount(t, "ORACLE_N", 1000), amount(t, "ORACLE_SEED", 1))
	p.led.print(os.Stdout)
	if n := p.led.differences(); n > 0 {
		t.Errorf("%d differences without a name", n)
	}
}

// drive runs so many fleets one after the other, the first of that number.
func drive(t *testing.T, p pair, first, fleets int) {
	t.Helper()
	z, err := zmq.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Term() }()
	seed := uint64(amount(t, "ORACLE_SEED", 1))
	p.trace = os.Getenv("ORACLE_TRACE") != ""
	said := time.Now()
	for i := first; i < first+fleets; i++ {
		if err := fleetRun(t.Context(), p, z, seed, i); err != nil {
			p.led.print(os.Stdout)
			t.Fatal(err)
		}
		if time.Since(said) > 20*time.Second {
			said = time.Now()
			t.Logf("%d of %d fleets, %d differences", i-first+1, fleets, p.led.differences())
		}
	}
}

func fleetRun(ctx context.Context, p pair, z *zmq.Context, seed uint64, number int) error {
	f := newFleet(p, z, seed, number)
	defer f.kill()
	return f.run(ctx)
}

func amount(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: a number from 1 on", name, v)
	}
	return n
}
