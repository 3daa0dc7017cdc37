package meter_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/routerd/routerd/host/meter"
)

func TestPiecesAreAllThatWasAddedAndNoneIsLong(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	of := func(sizes ...int) (parts [][]byte) {
		for _, n := range sizes {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			parts = append(parts, b)
		}
		return parts
	}
	const most = meter.PieceBytes
	for name, parts := range map[string][][]byte{
		"nothing":            nil,
		"empty":              of(0, 0),
		"one small":          of(7),
		"one full":           of(most),
		"one byte more":      of(most + 1),
		"small behind full":  of(most, 1),
		"across the edge":    of(most-3, 7, most),
		"many times as long": of(5*most + 11),
		"all sizes":          of(1, 70_000, 0, 1_300_000, 3, most-1, 2, 300_000),
	} {
		got, longest := meter.Gather(parts)
		if want := bytes.Join(parts, nil); !bytes.Equal(got, want) || longest > most {
			t.Errorf("%s: got %d bytes, the longest piece %d; want the %d that were added, at most %d", name, len(got), longest, len(want), most)
		}
	}
}
