package xxh3_test

import (
	"testing"

	zeebo "github.com/zeebo/xxh3"

	"github.com/routerd/routerd/plugins/abi/xxh3"
)

// pattern is a text of n bytes, other at each length.
func pattern(n int) string {
	b := make([]byte, n)
	x := uint32(n)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return string(b)
}

func TestSumEqualsTheReferenceAtEveryLength(t *testing.T) {
	for n := range 4200 {
		s := pattern(n)
		if got, want := xxh3.Sum(s), zeebo.HashString(s); got != want {
			t.Fatalf("length %d: got %#x, want %#x", n, got, want)
		}
	}
}

func TestSumGoldenVectors(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     uint64
	}{
		{"empty", "", 0x2d06800538d394c2},
		{"one byte", "a", 0xe6c632b61e964e1f},
		{"three bytes", "abc", 0x78af5f94892f3950},
		{"label value", "zone-a", 0xe1561c8367c96ef},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := xxh3.Sum(c.in); got != c.want {
				t.Errorf("got %#x, want %#x", got, c.want)
			}
		})
	}
}

func FuzzSumEqualsTheReference(f *testing.F) {
	f.Add("zone-a")
	f.Add(pattern(241))
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := xxh3.Sum(s), zeebo.HashString(s); got != want {
			t.Fatalf("length %d: got %#x, want %#x", len(s), got, want)
		}
	})
}

func TestSumAllocatesNothing(t *testing.T) {
	s := pattern(2000)
	if n := testing.AllocsPerRun(10, func() { xxh3.Sum(s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
