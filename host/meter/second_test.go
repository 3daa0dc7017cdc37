package meter_test

import (
	"errors"
	"fmt"
	"slices"
)

// A second decoder, written apart from the first and sharing nothing with it. It reads a metered module as a
// list of tokens, recognises the charges by their exact form, and proves that nothing else touches the fuel
// and that every instruction that can be executed is paid for.

var errWire = errors.New("malformed output")

// wire reads by panicking with errWire; verify recovers.
type wire struct {
	b []byte
	p int
}

func (w *wire) u8() byte {
	if w.p >= len(w.b) {
		panic(errWire)
	}
	w.p++
	return w.b[w.p-1]
}

func (w *wire) leb() uint64 {
	var v uint64
	for s := 0; s < 70; s += 7 {
		c := w.u8()
		v |= uint64(c&127) << s
		if c < 128 {
			return v
		}
	}
	panic(errWire)
}

func (w *wire) slebValue() int64 {
	start := w.p
	v := w.leb()
	n := 7 * (w.p - start)
	if n < 64 && w.b[w.p-1]&64 != 0 {
		v |= ^uint64(0) << n
	}
	return int64(v)
}

func (w *wire) skip(n uint64) []byte {
	if n > uint64(len(w.b)-w.p) {
		panic(errWire)
	}
	w.p += int(n)
	return w.b[w.p-int(n) : w.p]
}

// token is one instruction: op with 0xfc and 0xfd sub-opcodes in the higher bits, and its first immediates.
type token struct {
	op   int
	a    int64
	list []uint64
}

const (
	charged = -1 // a subtraction, a = price
	checked = -2 // a subtraction with a check, a = price
	byLen   = -3 // a charge by length
	spill   = -4 // what is left goes to the global
	reload  = -5 // and comes back
	looped  = -6 // a subtraction with a check that goes back to the loop head, a = price
)

func (w *wire) token() token {
	t := token{op: int(w.u8())}
	switch op := t.op; {
	case op >= 2 && op <= 4:
		t.a = w.slebValue()
	case op == 0x0e:
		for n := w.leb() + 1; n > 0; n-- {
			t.list = append(t.list, w.leb())
		}
	case op == 0x0c, op == 0x0d, op == 0x10, op >= 0x20 && op <= 0x26, op == 0xd0, op == 0xd2:
		t.a = int64(w.leb())
	case op == 0x11, op >= 0x28 && op <= 0x3e, op == 0x1c:
		t.a = int64(w.leb())
		w.leb()
	case op == 0x3f, op == 0x40:
		w.leb()
	case op == 0x41, op == 0x42:
		t.a = w.slebValue()
	case op == 0x43:
		w.skip(4)
	case op == 0x44:
		w.skip(8)
	case op == 0xfc:
		sub := w.leb()
		t.op |= int(sub+1) << 8
		for range []int{0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 2, 1, 2, 1, 2, 1, 1, 1}[sub] {
			w.leb()
		}
	case op == 0xfd:
		sub := w.leb()
		t.op |= int(sub+1) << 8
		w.vector(sub)
	}
	return t
}

func (w *wire) vector(sub uint64) {
	switch {
	case sub < 12, sub == 92, sub == 93:
		w.leb()
		w.leb()
	case sub == 12, sub == 13:
		w.skip(16)
	case sub >= 21 && sub <= 34:
		w.skip(1)
	case sub >= 84 && sub <= 91:
		w.leb()
		w.leb()
		w.skip(1)
	case sub > 255:
		panic(errWire)
	}
}

// output is what verify must know of a module.
type output struct {
	fuel, refuel int64
	imports      int64
	codes        [][]byte
}

// verify proves the metering of a rewritten module.
func verify(wasm []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("second decoder: %v", r)
		}
	}()
	o := readOutput(&wire{b: wasm, p: 8})
	for i, code := range o.codes {
		if err := o.function(code); err != nil {
			return fmt.Errorf("function %d: %w", i, err)
		}
	}
	return nil
}

func readOutput(w *wire) *output {
	o := &output{fuel: -1, refuel: -1}
	for w.p < len(w.b) {
		id := w.u8()
		s := &wire{b: w.skip(w.leb())}
		switch id {
		case 0:
			panic("custom section")
		case 2:
			for n := s.leb(); n > 0; n-- {
				mod, name := s.skip(s.leb()), ""
				_, name = string(mod), string(s.skip(s.leb()))
				if s.u8() != 0 {
					panic("import that is no function")
				}
				if string(mod) == "routerd_v1" && name == "__refuel" {
					o.refuel = o.imports
				}
				s.leb()
				o.imports++
			}
		case 7:
			for n := s.leb(); n > 0; n-- {
				name, kind, index := string(s.skip(s.leb())), s.u8(), int64(s.leb())
				switch {
				case name == "__fuel" && kind == 3:
					o.fuel = index
				case kind == 0 && index == o.refuel:
					panic("refuel is exported")
				case kind == 3 && index == o.fuel:
					panic("fuel is exported twice")
				}
			}
		case 10:
			for n := s.leb(); n > 0; n-- {
				o.codes = append(o.codes, s.skip(s.leb()))
			}
		}
	}
	if o.fuel < 0 || o.refuel != o.imports-1 {
		panic("no fuel global, or refuel is not the last import")
	}
	return o
}

// function checks one body.
func (o *output) function(code []byte) error {
	w := &wire{b: code}
	for n := w.leb(); n > 0; n-- {
		w.leb()
		w.u8()
	}
	var tokens []token
	for w.p < len(w.b) {
		tokens = append(tokens, w.token())
	}
	folded, err := o.fold(tokens)
	if err != nil {
		return err
	}
	return paid(folded)
}

// matches compares the tokens at the front with a pattern of op and immediate; -1 takes any immediate.
func matches(ts []token, pattern ...int64) bool {
	if len(ts) < len(pattern)/2 {
		return false
	}
	for i := 0; i < len(pattern); i += 2 {
		if t := ts[i/2]; int64(t.op) != pattern[i] || (pattern[i+1] != -1 && t.a != pattern[i+1]) {
			return false
		}
	}
	return true
}

// fold replaces the forms of the meter by single tokens and refuses any other use of fuel and refuel. The
// local that holds what is left is the one that the charge at entry names.
func (o *output) fold(ts []token) ([]token, error) {
	if !matches(ts, 0x23, o.fuel, 0x42, -1, 0x7d, 0, 0x22, -1) || !matches(ts[3:], o.check(ts[3].a)...) {
		return nil, fmt.Errorf("no checked charge at function entry")
	}
	left := ts[3].a
	check := o.check(left)
	n := len(check) / 2
	out := []token{{op: checked, a: ts[1].a}}
	ts = ts[3+n:]
	for len(ts) > 0 {
		t := ts[0]
		switch {
		case matches(ts, append([]int64{0x20, left, 0x42, -1, 0x7d, 0}, check...)...):
			out, ts = append(out, token{op: checked, a: ts[1].a}), ts[3+n:]
		case matches(ts, 0x20, left, 0x42, -1, 0x7d, 0, 0x22, left, 0x42, 0, 0x53, 0, 0x04, -64, 0x20, left, 0x24, o.fuel,
			0x10, o.refuel, 0x23, o.fuel, 0x42, ts[min(1, len(ts)-1)].a, 0x7c, 0, 0x21, left, 0x0c, 1, 0x0b, 0):
			out, ts = append(out, token{op: looped, a: ts[1].a}), ts[16:]
		case matches(ts, 0x20, left, 0x42, -1, 0x7d, 0, 0x21, left):
			out, ts = append(out, token{op: charged, a: ts[1].a}), ts[4:]
		case matches(ts, 0x22, left+1, 0x20, left, 0x42, -1, 0x20, left+1, 0xad, 0, 0x42, -1):
			if op := ts[6].op; (op != 0x7e && op != 0x80) || !matches(ts[7:], append([]int64{0x20, left + 1, 0x41, -1, 0x4b, 0, 0x1b, 0, 0x7d, 0}, check...)...) {
				return nil, fmt.Errorf("charge by length of an unknown form")
			}
			out, ts = append(out, token{op: byLen}), ts[12+n:]
		case matches(ts, 0x20, left, 0x24, o.fuel):
			out, ts = append(out, token{op: spill}), ts[2:]
		case matches(ts, 0x23, o.fuel, 0x21, left):
			out, ts = append(out, token{op: reload}), ts[2:]
		case (t.op == 0x23 || t.op == 0x24) && t.a == o.fuel, t.op >= 0x20 && t.op <= 0x22 && t.a >= left:
			return nil, fmt.Errorf("the guest touches the fuel")
		case (t.op == 0x10 || t.op == 0xd2) && t.a == o.refuel:
			return nil, fmt.Errorf("the guest names the refuel import")
		default:
			out, ts = append(out, t), ts[1:]
		}
	}
	return out, nil
}

// check is the form of a check: tee, compare, and a refuel between spill and reload.
func (o *output) check(left int64) []int64 {
	return []int64{0x22, left, 0x42, 0, 0x53, 0, 0x04, -64, 0x20, left, 0x24, o.fuel, 0x10, o.refuel, 0x23, o.fuel, 0x21, left, 0x0b, 0}
}

// scope is an open block in paid.
type scope struct {
	op   int
	aim  bool // a branch names it
	dead bool // it was opened in code that is never executed
}

// ledger follows what is paid along a body.
type ledger struct {
	credit int64
	unpaid bool // credit was below zero once
	dead   bool
	open   []scope
}

func paid(ts []token) error {
	l := &ledger{open: []scope{{op: 2}}}
	at := func(i int) token {
		if i < 0 || i >= len(ts) {
			return token{}
		}
		return ts[i]
	}
	for i, t := range ts {
		last, next := at(i-1), at(i+1)
		switch {
		case (t.op == charged || t.op == checked || t.op == looped) && t.a < 1:
			return fmt.Errorf("charge of %d", t.a)
		case t.op == looped && last.op != 3:
			return fmt.Errorf("loop charge elsewhere")
		case t.op == 3 && next.op != checked && next.op != looped:
			return fmt.Errorf("no checked charge at a loop head")
		case bulk(t.op) != (last.op == byLen):
			return fmt.Errorf("operation %#x without a charge by length, or the reverse", t.op)
		case l.leaves(t) && last.op != spill:
			return fmt.Errorf("%#x leaves the body without a spill", t.op)
		case (t.op == 0x10 || t.op == 0x11) != (next.op == reload):
			return fmt.Errorf("call without a reload, or the reverse, at %#x", t.op)
		}
		if l.step(t); l.unpaid || len(l.open) == 0 && i < len(ts)-1 {
			return fmt.Errorf("instruction %#x is not paid for", t.op)
		}
	}
	if len(l.open) != 0 {
		return fmt.Errorf("unbalanced blocks")
	}
	return nil
}

// leaves says whether control goes to a callee or to the caller.
func (l *ledger) leaves(t token) bool {
	outermost := uint64(len(l.open) - 1)
	switch t.op {
	case 0x10, 0x11, 0x0f:
		return true
	case 0x0c, 0x0d:
		return uint64(t.a) == outermost
	case 0x0e:
		return slices.Contains(t.list, outermost)
	case 0x0b:
		return outermost == 0 && !l.dead
	}
	return false
}

// bulk says whether an instruction is charged by its length.
func bulk(op int) bool {
	return op == 0x40 || op > 0xff && op&0xff == 0xfc && slices.Contains([]int{8, 10, 11, 12, 14, 15, 17}, op>>8-1)
}

func (l *ledger) step(t token) {
	switch {
	case t.op == charged, t.op == checked, t.op == looped:
		l.credit += t.a
		return
	case t.op >= 0 && t.op != 0x05 && t.op != 0x0b && !l.dead:
		l.credit--
		if memory := t.op >= 0x28 && t.op <= 0x3e || t.op&0xff == 0xfd && (t.op>>8 <= 12 || t.op>>8 >= 85 && t.op>>8 <= 94); memory {
			l.credit -= 3
		}
		l.unpaid = l.unpaid || l.credit < 0
	}
	aim := func(depth uint64) { l.open[len(l.open)-1-int(depth)].aim = true }
	switch t.op {
	case 2:
		l.open = append(l.open, scope{op: 2, dead: l.dead})
	case 3, 4:
		l.open = append(l.open, scope{op: t.op, dead: l.dead})
		l.cut()
	case 5:
		l.cut()
		l.dead = l.open[len(l.open)-1].dead
	case 0x0b:
		l.leave()
	case 0x0c, 0x0d:
		aim(uint64(t.a))
		l.cut()
		l.dead = l.dead || t.op == 0x0c
	case 0x0e:
		for _, depth := range t.list {
			aim(depth)
		}
		l.cut()
		l.dead = true
	case 0x00, 0x0f:
		l.cut()
		l.dead = true
	}
}

// cut voids the credit where control splits, joins or stops: what follows needs its own charge.
func (l *ledger) cut() { l.credit = 0 }

func (l *ledger) leave() {
	s := l.open[len(l.open)-1]
	l.open = l.open[:len(l.open)-1]
	if s.op == 4 || s.op == 2 && s.aim {
		l.cut()
		l.dead = s.dead
	}
}
