package abi_test

import (
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/plugins/abi"
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

func TestXXH3EqualsTheReferenceAtEveryLength(t *testing.T) {
	for n := range 4200 {
		s := pattern(n)
		if got, want := abi.XXH3(s), xxh3.HashString(s); got != want {
			t.Fatalf("length %d: got %#x, want %#x", n, got, want)
		}
	}
}

func TestXXH3GoldenVectors(t *testing.T) {
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
			if got := abi.XXH3(c.in); got != c.want {
				t.Errorf("got %#x, want %#x", got, c.want)
			}
		})
	}
}

func TestIDIsTheHashesUpper53Bits(t *testing.T) {
	for _, s := range []string{"", "zone-a", "zone-b", "ünïcode", pattern(300)} {
		id := abi.ID(s)
		if want := xxh3.HashString(s) >> 11; uint64(id) != want || id > 1<<53-1 {
			t.Errorf("ID(%.10q) = %v, want %d", s, id, want)
		}
	}
	if abi.ID("") == 0 {
		t.Error(`ID("") is 0, the number for missing`)
	}
}

func FuzzXXH3EqualsTheReference(f *testing.F) {
	f.Add("zone-a")
	f.Add(pattern(241))
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := abi.XXH3(s), xxh3.HashString(s); got != want {
			t.Fatalf("length %d: got %#x, want %#x", len(s), got, want)
		}
	})
}

func TestXXH3AllocatesNothing(t *testing.T) {
	s := pattern(2000)
	if n := testing.AllocsPerRun(10, func() { abi.XXH3(s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
