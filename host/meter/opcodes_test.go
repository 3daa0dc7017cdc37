package meter_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/routerd/routerd/host/meter"
	"github.com/routerd/routerd/plugins/abi"
)

// everyOpcode lists all opcodes of one byte and all that a prefix can have, far past the last that is defined.
func everyOpcode() [][]byte {
	var all [][]byte
	for op := range 256 {
		if op != 0xfc && op != 0xfd {
			all = append(all, []byte{byte(op)})
		}
	}
	for sub := range uint64(700) {
		all = append(all, cat(0xfc, uleb(sub)), cat(0xfd, uleb(sub)))
	}
	return all
}

func TestEveryOpcodeHasAGoldenPriceOrIsRefused(t *testing.T) {
	priced := map[string]bool{}
	for _, s := range samples() {
		priced[string(s.opcode)] = true
	}
	for _, code := range everyOpcode() {
		if priced[string(code)] {
			continue
		}
		_, err := meter.Decode(void(nil, code, make([]byte, 32)).bytes(), meter.DefaultLimits())
		var refusal *meter.Error
		if !errors.As(err, &refusal) || refusal.Step != meter.StepBodies || !strings.HasPrefix(refusal.Item, "instruction 0x") {
			t.Errorf("opcode % x has no golden price and is not refused as undefined: %v", code, err)
		}
	}
}

// goldenPrices reads the golden file by names.
func goldenPrices(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	prices := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == 3 {
			prices[f[0]] = f[2]
		}
	}
	return prices
}

// classesOf lists the published classes that an opcode is in.
func classesOf(opcode []byte) []abi.FuelClass {
	var prefix byte
	w := &wire{b: opcode}
	number := uint64(opcode[0])
	if len(opcode) > 1 {
		prefix = w.u8()
		number = w.leb()
	}
	var in []abi.FuelClass
	for _, c := range meter.Fuel1.Classes() {
		for _, r := range c.Opcodes {
			if r.Prefix == prefix && number >= uint64(r.First) && number <= uint64(r.Last) {
				in = append(in, c)
			}
		}
	}
	return in
}

func TestPublishedPricesAreTheMeasuredOnes(t *testing.T) {
	prices := goldenPrices(t)
	priced := map[string]bool{}
	for _, s := range samples() {
		if s.opcode == nil {
			continue
		}
		priced[string(s.opcode)] = true
		in := classesOf(s.opcode)
		if len(in) != 1 {
			t.Errorf("%s is in %d classes", s.name, len(in))
			continue
		}
		c := in[0]
		more := meter.Fuel1.LengthPrice(c.Unit, s.length, options.MemoryMaxPages)
		want := fmt.Sprint(c.Fuel + more)
		switch {
		case c.Refused:
			want = "refused"
		case more == abi.Endless:
			want = "ends the call"
		}
		if got := prices[s.name]; got != want {
			t.Errorf("%s: measured %s, published %s in %q", s.name, got, want, c.Name)
		}
	}
	for _, code := range everyOpcode() {
		if len(classesOf(code)) > 0 && !priced[string(code)] {
			t.Errorf("opcode % x has a published price and no golden one", code)
		}
	}
}
