package meter_test

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/routerd/routerd/host/meter"
)

type segment struct {
	at    int32
	bytes string
}

func dataModule(segments []segment) *builder {
	b := fnModule(nil, nil, nil)
	for _, s := range segments {
		b.datas = append(b.datas, cat(0, i32c(s.at), 0x0b, str(s.bytes)))
	}
	return b
}

func TestNeighbouringDataSegmentsAreJoinedWhereItCannotBeSeen(t *testing.T) {
	far := string(bytes.Repeat([]byte("x"), 20))
	cases := []struct {
		name  string
		build *builder
		want  int
	}{
		{"adjacent", dataModule([]segment{{8, "ab"}, {10, "cd"}}), 1},
		{"gap of 32", dataModule([]segment{{8, "ab"}, {42, "cd"}, {50, "e"}}), 1},
		{"gap of 33", dataModule([]segment{{8, "ab"}, {43, "cd"}}), 2},
		{"overlap", dataModule([]segment{{8, "ab"}, {9, "cd"}}), 2},
		{"descending", dataModule([]segment{{80, "ab"}, {8, "cd"}, {10, "ef"}}), 3},
		{"gap that an earlier segment wrote", dataModule([]segment{{20, far}, {8, "cd"}, {12, "ef"}}), 3},
		{"above all again", dataModule([]segment{{20, far}, {8, "cd"}, {50, "ef"}, {53, "g"}}), 3},
		{"numbered by a data count", func() *builder { b := dataModule([]segment{{8, "ab"}, {10, "cd"}}); b.count = true; return b }(), 2},
		{"passive between", func() *builder {
			b := dataModule([]segment{{8, "ab"}, {10, "cd"}, {12, "e"}})
			b.datas[1] = cat(1, str("zz"))
			return b
		}(), 3},
		{"offset from a global", func() *builder {
			b := dataModule([]segment{{8, "ab"}, {10, "cd"}, {12, "e"}, {13, "f"}})
			b.globals = [][]byte{cat(i32, 0, i32c(9), 0x0b)}
			b.datas[1] = cat(0, 0x23, 0, 0x0b, str("zz"))
			return b
		}(), 4},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if got := meter.Stats(decode(t, rewriteForStats(t, tc.build.bytes())))["data segments"]; got != tc.want {
				t.Errorf("%d segments, want %d", got, tc.want)
			}
		})
	}
}

// rewriteForStats rewrites a module and takes away what keeps Decode from reading the result: the two
// reserved names get another letter.
func rewriteForStats(t *testing.T, wasm []byte) []byte {
	t.Helper()
	out := bytes.ReplaceAll(rewrite(t, wasm), []byte(meter.FuelGlobal), []byte("__fuxx"))
	return bytes.ReplaceAll(out, []byte(meter.RefuelName), []byte("__refuxx"))
}

func TestJoinedDataGivesTheSameMemory(t *testing.T) {
	rng := rand.New(rand.NewSource(7))
	for range 60 {
		var segments []segment
		at := int32(rng.Intn(100))
		for range 1 + rng.Intn(12) {
			text := make([]byte, rng.Intn(40))
			for i := range text {
				text[i] = byte(1 + rng.Intn(255))
			}
			segments = append(segments, segment{at, string(text)})
			at = max(0, at+int32(len(text)+rng.Intn(70)-12))
		}
		wasm := dataModule(segments).bytes()
		_, _, want := runPlain(t, wasm, nil)
		if _, _, got := runMetered(t, wasm, nil); !bytes.Equal(want, got) {
			t.Fatalf("memories differ for %v", segments)
		}
	}
}
