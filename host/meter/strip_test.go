package meter_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host/meter"
	"github.com/routerd/routerd/host/smith"
)

func TestWithoutCustomLeavesAllElseByteForByte(t *testing.T) {
	one, two := section(1, cat(1, 0x60, 0, 0)), cat(3, 0x82, 0x80, 0x00, 1, 0) // a padded length stays as it is
	code := section(10, cat(1, 2, 0, 0x0b))
	lie := section(0, cat(str("name"), 1, uleb(1<<31), uleb(1<<32-1)))
	note := section(0, cat(str("note"), bytes.Repeat([]byte{0}, 1<<20)))
	for name, tc := range map[string]struct{ in, want []byte }{
		"none":         {raw(one, two, code), raw(one, two, code)},
		"everywhere":   {raw(note, one, lie, two, note, code, lie), raw(one, two, code)},
		"nothing else": {raw(lie), raw()},
		"empty name":   {raw(section(0, cat(0)), one), raw(one)},
		"no sections":  {raw(), raw()},
	} {
		t.Run(name, func(t *testing.T) {
			kept := bytes.Clone(tc.in)
			got, err := meter.WithoutCustom(tc.in)
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if !bytes.Equal(tc.in, kept) {
				t.Error("its input was changed")
			}
		})
	}
}

func TestWithoutCustomOfTheGeneratorsModulesIsTheSame(t *testing.T) {
	for seed := range uint64(50) {
		wasm := smith.Module(rand.New(rand.NewPCG(seed, 9)), smith.DefaultOptions())
		got, err := meter.WithoutCustom(append(bytes.Clone(wasm), section(0, str("x"))...))
		if err != nil || !bytes.Equal(got, wasm) {
			t.Fatalf("seed %d: %v, %d bytes became %d", seed, err, len(wasm), len(got))
		}
	}
}

func TestWithoutCustomRefusesWhatIsCutOff(t *testing.T) {
	for name, tc := range map[string]struct {
		wasm []byte
		item string
	}{
		"no header":        {[]byte("\x00asm"), "header"},
		"section cut":      {raw(1, 5, 0), "section 1 of 5 bytes"},
		"custom cut":       {raw(0, uleb(1<<30), 1, "x"), "section 0 of 1073741824 bytes"},
		"length cut":       {raw(0, 0x80), "section length"},
		"length too long":  {raw(0, 0x80, 0x80, 0x80, 0x80, 0x80, 0), "32-bit LEB128"},
		"id and no length": {raw(0), "section length"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := meter.WithoutCustom(tc.wasm)
			wantRefusal(t, err, meter.CodeParse, meter.StepWalk, tc.item)
		})
	}
}
