package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/jsonscan"
)

func TestArraysOfTokenIDs(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []uint32
	}{
		{`[]`, []uint32{}},
		{` [ ] `, nil}, // it stands before a space
		{`[ ]`, []uint32{}},
		{`[0]`, []uint32{0}},
		{`[1,22,333,4444,55555,666666,7777777,88888888,999999999,4294967295]`, []uint32{1, 22, 333, 4444, 55555, 666666, 7777777, 88888888, 999999999, 4294967295}},
		{`[1, 22, 333, 4444, 55555, 666666, 7777777, 88888888, 999999999, 4294967295]`, []uint32{1, 22, 333, 4444, 55555, 666666, 7777777, 88888888, 999999999, 4294967295}},
		{"[\n  10,\n\t20 , 30\r\n]", []uint32{10, 20, 30}},
		{`[0,0, 0,10,  5]`, []uint32{0, 0, 0, 10, 5}},
	} {
		r := jsonscan.Reader{Data: []byte(tc.text)}
		got, err := r.Uint32s([]uint32{})
		if tc.want == nil {
			if !errors.Is(err, jsonscan.ErrNotJSON) {
				t.Errorf("%s: got %v, %v", tc.text, got, err)
			}
			continue
		}
		if err != nil || r.Pos != len(tc.text) {
			t.Errorf("%s: got %v, at %d", tc.text, err, r.Pos)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: %s", tc.text, d)
		}
	}
}

func TestArraysOfTokenIDsNameTheWrongElement(t *testing.T) {
	for text, want := range map[string]jsonscan.ElementError{
		`[1,2,-3,4]`:          {Index: 2, Value: []byte(`-3`), Whole: true},
		`[1,2,4294967296]`:    {Index: 2, Value: []byte(`4294967296`), Whole: true},
		`[1,2,"x",444444444]`: {Index: 2, Value: []byte(`"x"`)},
		`[1.0,2,3,4,5,6,7,8]`: {Index: 0, Value: []byte(`1.0`)},
		`[1,2e1,3,4,5,6,7,8]`: {Index: 1, Value: []byte(`2e1`)},
		`[null]`:              {Index: 0, Value: []byte(`null`)},
		`[[1]]`:               {Index: 0, Value: []byte(`[1]`)},
		`[true,1,2,3,4,5,6]`:  {Index: 0, Value: []byte(`true`)},
		`[99999999999999999999999999999999999999999999]`: {Index: 0, Value: []byte(`99999999999999999999999999999999999999999999`), Whole: true},
	} {
		r := jsonscan.Reader{Data: []byte(text)}
		_, err := r.Uint32s(nil)
		got, ok := errors.AsType[*jsonscan.ElementError](err)
		if !ok {
			t.Errorf("%s: got %v", text, err)
			continue
		}
		if d := cmp.Diff(want, *got); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
	for _, text := range []string{
		``, `[`, `[1`, `[1,`, `[1,]`, `[1 2]`, `[,1]`, `[01]`, `[1,02,3,4,5,6,7]`, `[00,1,2,3,4,5,6]`, `[-]`, `[1}`, `[+1]`, `[1,2,3,4,5,6,7,8,9`, `[0x10]`, `[1,,2,3,4,5,6,7]`,
	} {
		r := jsonscan.Reader{Data: []byte(text)}
		if got, err := r.Uint32s(nil); !errors.Is(err, jsonscan.ErrNotJSON) {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
}

func TestArraysOfHashesTakeSignedAndUnsigned(t *testing.T) {
	r := jsonscan.Reader{Data: []byte(`[-1,18446744073709551615, 9223372036854775808,-9223372036854775808,0,-0,-3803038269031200164,123456789012345678]`)}
	got, err := jsonscan.Hashes[uint64](&r, nil)
	want := []uint64{1<<64 - 1, 1<<64 - 1, 1 << 63, 1 << 63, 0, 0, 14643705804678351452, 123456789012345678}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v: %s", err, d)
	}
	for _, text := range []string{`[18446744073709551616]`, `[-9223372036854775809]`, `[99999999999999999999]`, `[1e3]`, `["1"]`, `[-18446744073709551615]`, `[340282366920938463463374607431768211456]`} {
		r := jsonscan.Reader{Data: []byte(text)}
		if _, ok := errors.AsType[*jsonscan.ElementError](second(jsonscan.Hashes[uint64](&r, nil))); !ok {
			t.Errorf("%s was taken", text)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// The fast reader and a general decoder take the same texts and read the same.
func FuzzTokenIDs(f *testing.F) {
	for _, seed := range []string{
		`[]`, `[1,2,3]`, `[1, 2, 3, 40000, 500000, 128009]`, `[4294967295,4294967296]`, `[01,2,3,4,5,6]`, `[1,2,3,4,5,6,7,8,-9]`, `[ 1 ,2]`, `[1.5,2]`, `[1e2]`, `[1,2`, `[99999999,99999999]`,
		`[18446744073709551615]`, `[-1,-9223372036854775808]`, `[1,null]`, `["1"]`, `[[]]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) == 0 || text[0] != '[' {
			return
		}
		r := jsonscan.Reader{Data: text}
		ids, err := r.Uint32s(nil)
		var all []json.Number
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		lenient := d.Decode(&all)
		if err != nil {
			if bad, ok := errors.AsType[*jsonscan.ElementError](err); ok && lenient == nil && bad.Index < len(all) {
				if _, err := strconv.ParseUint(all[bad.Index].String(), 10, 32); err == nil && bad.Value[0] != '"' {
					t.Errorf("%q: %v, but it is %s", text, bad, all[bad.Index])
				}
			} else if !ok && lenient == nil {
				t.Errorf("%q: %v, but it is JSON", text, err)
			}
			return
		}
		if lenient != nil || len(ids) != len(all) {
			t.Fatalf("%q: read %d ids, the other %d: %v", text, len(ids), len(all), lenient)
		}
		for i, id := range ids {
			if strconv.FormatUint(uint64(id), 10) != all[i].String() {
				t.Errorf("%q: element %d is %d", text, i, id)
			}
		}
		r = jsonscan.Reader{Data: text}
		hashes, err := jsonscan.Hashes[uint64](&r, nil)
		if err != nil || len(hashes) != len(ids) {
			t.Fatalf("%q: %v", text, err)
		}
		for i := range ids {
			if hashes[i] != uint64(ids[i]) {
				t.Errorf("%q: hash %d is %d", text, i, hashes[i])
			}
		}
	})
}

func BenchmarkTokenIDs(b *testing.B) {
	for _, sep := range []string{",", ", "} {
		b.Run(fmt.Sprintf("8192 ids with %q", sep), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			parts := make([]string, 8192)
			for i := range parts {
				parts[i] = strconv.Itoa(rng.IntN(128_000))
			}
			text := []byte("[" + strings.Join(parts, sep) + "]")
			ids := make([]uint32, 0, len(parts))
			var err error
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r := jsonscan.Reader{Data: text}
				if ids, err = r.Uint32s(ids[:0]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(parts)), "ns/id")
		})
	}
}
