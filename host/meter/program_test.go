package meter_test

import (
	"errors"
	"fmt"
	"math/rand"
	"testing"

	"github.com/routerd/routerd/host/meter"
)

// Random structured programs with their own price: each node can be written as wasm and run here, so that the
// fuel of a metered run is compared with a plain count of what was executed.

// Locals of a program: 0 is the state x, the others are loop counters.
const counters = 8

type node interface {
	// emit writes the node; depth is the number of blocks around it.
	emit(p *program, out []byte) []byte
	// run executes it: it returns how many blocks a branch leaves, or -1.
	run(p *program) int
}

type program struct {
	rng      *rand.Rand
	open     []*target
	loops    int
	x        uint32
	cost     uint64
	sur      uint64 // (parameters + locals) / 16
	returned bool
}

type target struct{ loop, named bool }

type seq []node

func (s seq) emit(p *program, out []byte) []byte {
	for _, n := range s {
		out = n.emit(p, out)
	}
	return out
}

func (s seq) run(p *program) int {
	for _, n := range s {
		if d := n.run(p); d >= 0 || p.returned {
			return d
		}
	}
	return -1
}

// step is x = x*1664525 + 1013904223, and a load of it from memory at times.
type step struct{ load bool }

func (s step) emit(_ *program, out []byte) []byte {
	out = cat(out, get(0), i32c(1664525), 0x6c, i32c(1013904223), 0x6a, set(0))
	if s.load {
		out = cat(out, i32c(64), get(0), 0x36, 2, 0, i32c(64), 0x28, 2, 0, set(0))
	}
	return out
}

func (s step) run(p *program) int {
	p.x = p.x*1664525 + 1013904223
	p.cost += 6
	if s.load {
		p.cost += 2 + 4 + 1 + 4 + 1
	}
	return -1
}

// chance pushes a bit of x: five instructions.
func chance(out []byte) []byte { return cat(out, get(0), i32c(16), 0x76, i32c(1), 0x71) }

func (p *program) bit() bool {
	p.cost += 5
	return p.x>>16&1 == 1
}

type block struct {
	body seq
	t    *target
}

func (b block) emit(p *program, out []byte) []byte {
	p.open = append(p.open, b.t)
	out = cat(b.body.emit(p, cat(out, 0x02, 0x40)), 0x0b)
	p.open = p.open[:len(p.open)-1]
	return out
}

func (b block) run(p *program) int {
	p.cost++
	d := b.body.run(p)
	if p.returned || d > 0 {
		return d - 1
	}
	if b.t.named {
		p.cost += p.sur
	}
	return -1
}

// loop runs its body n times; its counter is its own.
type loop struct {
	body    seq
	n       int
	counter uint64
	t       *target
}

func (l loop) emit(p *program, out []byte) []byte {
	p.open = append(p.open, l.t)
	out = cat(out, i32c(int32(l.n)), set(l.counter), 0x03, 0x40)
	out = cat(l.body.emit(p, out), get(l.counter), i32c(1), 0x6b, tee(l.counter), 0x0d, 0, 0x0b)
	p.open = p.open[:len(p.open)-1]
	return out
}

func (l loop) run(p *program) int {
	p.cost += 3
	for i := l.n; ; i-- {
		p.cost += p.sur
		if d := l.body.run(p); d >= 0 || p.returned {
			return d - 1 // branches never aim at the loop itself: it would not end
		}
		p.cost += 5
		if i <= 1 {
			p.cost += p.sur // after br_if
			return -1
		}
	}
}

type choice struct {
	yes, no seq // no may be nil
	t       *target
}

func (c choice) emit(p *program, out []byte) []byte {
	p.open = append(p.open, c.t)
	out = c.yes.emit(p, cat(chance(out), 0x04, 0x40))
	if c.no != nil {
		out = c.no.emit(p, cat(out, 0x05))
	}
	p.open = p.open[:len(p.open)-1]
	return cat(out, 0x0b)
}

func (c choice) run(p *program) int {
	arm := c.no
	if p.bit() {
		arm = c.yes
	}
	p.cost++
	if arm != nil {
		p.cost += p.sur
		if d := arm.run(p); d > 0 || p.returned {
			return d - 1
		}
	}
	p.cost += p.sur
	return -1
}

// leave is br, br_if or a br_table of two, to open blocks that are no loops; depth 0 is the innermost.
type leave struct {
	op    int
	depth [2]int
}

func (l leave) emit(p *program, out []byte) []byte {
	for _, d := range l.depth {
		p.open[len(p.open)-1-d].named = true
	}
	switch l.op {
	case 0x0c:
		return cat(out, 0x0c, uleb(uint64(l.depth[0])))
	case 0x0d:
		return cat(chance(out), 0x0d, uleb(uint64(l.depth[0])))
	}
	return cat(chance(out), 0x0e, 1, uleb(uint64(l.depth[0])), uleb(uint64(l.depth[1])))
}

func (l leave) run(p *program) int {
	p.cost++
	if l.op == 0x0c {
		return l.depth[0]
	}
	taken := p.bit()
	switch {
	case l.op == 0x0d && taken, l.op == 0x0e && !taken:
		return l.depth[0]
	case l.op == 0x0e:
		return l.depth[1]
	}
	p.cost += p.sur
	return -1
}

type exit struct{}

func (exit) emit(_ *program, out []byte) []byte { return cat(out, get(0), 0x0f) }
func (exit) run(p *program) int                 { p.cost += 2; p.returned = true; return -1 }

// generate makes a random sequence at most deep blocks deep.
func (p *program) generate(deep int) seq {
	var s seq
	for range 1 + p.rng.Intn(4) {
		s = append(s, p.node(deep))
	}
	return s
}

func (p *program) within(t *target, deep int) seq {
	p.open = append(p.open, t)
	s := p.generate(deep - 1)
	p.open = p.open[:len(p.open)-1]
	return s
}

func (p *program) node(deep int) node {
	kind := p.rng.Intn(12)
	if deep == 0 {
		kind %= 4
	}
	switch {
	case kind < 2:
		return step{load: kind == 1}
	case kind == 2 && p.rng.Intn(20) == 0:
		return exit{}
	case kind < 5:
		return p.leave()
	case kind < 7:
		t := &target{}
		return block{body: p.within(t, deep), t: t}
	case kind < 9 && p.loops < counters:
		p.loops++
		t := &target{loop: true}
		l := loop{n: 1 + p.rng.Intn(3), counter: uint64(p.loops), t: t}
		l.body = p.within(t, deep)
		return l
	}
	t := &target{}
	c := choice{yes: p.within(t, deep), t: t}
	if p.rng.Intn(2) == 0 {
		c.no = p.within(t, deep)
	}
	return c
}

func (p *program) leave() node {
	var aims []int
	for d := range p.open {
		if !p.open[len(p.open)-1-d].loop {
			aims = append(aims, d)
		}
	}
	if len(aims) == 0 {
		return step{}
	}
	pick := func() int { return aims[p.rng.Intn(len(aims))] }
	l := leave{op: []int{0x0c, 0x0d, 0x0d, 0x0d, 0x0e}[p.rng.Intn(5)]}
	l.depth[0] = pick()
	l.depth[1] = l.depth[0]
	if l.op == 0x0e {
		l.depth[1] = pick()
	}
	return l
}

// newProgram makes the program of a seed as a module f(i32) -> i32 and the node that runs it.
func newProgram(seed int64) (*program, seq, []byte) {
	p := &program{rng: rand.New(rand.NewSource(seed))}
	body := p.generate(5)
	p.open = nil
	extra := uint64(p.rng.Intn(3) * 16)
	p.sur = (1 + counters + extra) / 16
	locals := [][]byte{group(counters, i32)}
	if extra > 0 {
		locals = append(locals, group(extra, f64))
	}
	code := cat(body.emit(p, nil), get(0))
	p.cost = 1 + uint64(len(vec(locals...))+len(code)+1)/16
	return p, body, fnModule(one, one, locals, code).bytes()
}

func TestUsedFuelEqualsThePriceOfWhatWasExecuted(t *testing.T) {
	for seed := range int64(400) {
		p, body, wasm := newProgram(seed)
		p.x = uint32(seed) * 2654435761
		out := rewrite(t, wasm)
		if err := verify(out); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		m, err := newMachine(t, out, 0)
		if err != nil {
			t.Fatal(err)
		}
		res, used, err := m.call(t, 10_000_000, "f", uint64(p.x))
		if body.run(p); !p.returned {
			p.cost++ // the final local.get
		}
		if got, want := fmt.Sprint(res, used, err), fmt.Sprint([]uint64{uint64(p.x)}, p.cost, nil); got != want {
			t.Fatalf("seed %d: result, fuel, error %s; want %s", seed, got, want)
		}
	}
}

func TestBudgetIsExact(t *testing.T) {
	for seed := range int64(60) {
		p, body, wasm := newProgram(seed)
		if body.run(p); !p.returned {
			p.cost++
		}
		m, err := newMachine(t, rewrite(t, wasm), 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.call(t, p.cost, "f", 0); err != nil {
			t.Errorf("seed %d: %v with the exact price %d", seed, err, p.cost)
		}
		if _, used, err := m.call(t, p.cost/2, "f", 0); err == nil && used <= p.cost/2 || err != nil && !errors.Is(err, errSpent) {
			t.Errorf("seed %d: used %d of %d with half the price %d", seed, used, err, p.cost)
		}
	}
}

// worstDebt runs f(arg) with a slice of 1,000 and every grant as small as can be: it returns the largest debt
// that a check met and how far below zero the call ended. No path may be charged more than 100 unchecked, and a
// segment is at most 100 and its last instruction.
func worstDebt(t *testing.T, wasm []byte, entry, arg uint64) (debt uint64, below int64) {
	t.Helper()
	out, err := decode(t, wasm).Rewrite(meter.Options{MemoryMaxPages: 64, StartFuel: slice, Slice: 1000})
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMachine(t, out, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.exactly, m.rest = true, 10_000_000
	m.fuel.Set(entry)
	if _, err := m.mod.ExportedFunction("f").Call(t.Context(), arg); err != nil {
		t.Fatal(err)
	}
	return m.debt, -int64(m.fuel.Get())
}

func TestNoPathIsChargedFarWithoutACheck(t *testing.T) {
	for seed := range int64(300) {
		p, _, wasm := newProgram(seed)
		debt, below := worstDebt(t, wasm, p.cost, uint64(seed)*2654435761%(1<<32)) // p.cost is the entry price so far
		if debt > 205 || below > 100 {
			t.Errorf("seed %d: a check met a debt of %d, the call ended %d below zero", seed, debt, below)
		}
	}
}

func TestChecksInArmsNotTakenDoNotCount(t *testing.T) {
	loop, nops := cat(0x03, 0x40, 0x01, 0x0b), repeat(40, 0x01)
	for name, round := range map[string][]byte{
		"then":            cat(get(0), 0x04, 0x40, loop, 0x0b, nops),
		"then, with else": cat(get(0), 0x04, 0x40, loop, 0x05, nops, 0x0b),
		"else":            cat(get(0), 0x45, 0x04, 0x40, nops, 0x05, loop, 0x0b),
		"skipped block":   cat(0x02, 0x40, get(0), 0x45, 0x0d, 0, loop, 0x0b, nops),
	} {
		code := repeat(50, round)
		debt, below := worstDebt(t, fnModule(one, nil, nil, code).bytes(), 1+uint64(len(code)+2)/16, 0)
		if debt > 205 || below > 100 {
			t.Errorf("%s: a check met a debt of %d, the call ended %d below zero", name, debt, below)
		}
	}
}
