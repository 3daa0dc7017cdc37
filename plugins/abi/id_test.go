package abi_test

import (
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/plugins/abi"
)

func TestIDIsTheHashesUpper53Bits(t *testing.T) {
	for _, s := range []string{"", "zone-a", "zone-b", "ünïcode"} {
		id := abi.ID(s)
		if want := xxh3.HashString(s) >> 11; uint64(id) != want || id > 1<<53-1 {
			t.Errorf("ID(%q) = %v, want %d", s, id, want)
		}
	}
	if abi.ID("") == 0 {
		t.Error(`ID("") is 0, the number for missing`)
	}
}
