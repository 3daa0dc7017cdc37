package hostiletest_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/host/smith/hostiletest"
)

func hostileAt(n int) hostiletest.Specimen {
	return hostiletest.Module(rand.New(rand.NewPCG(uint64(n), 4)), n, bytes.Repeat([]byte("an example"), 1000))
}

func TestHostileSequenceCanBeRepeated(t *testing.T) {
	for n := range 3 * len(hostiletest.Families()) {
		first, again := hostileAt(n), hostileAt(n)
		if !bytes.Equal(first.Bytes, again.Bytes) || first.Name != again.Name {
			t.Errorf("module %d, %s: other bytes or another name (%s) when it is made again", n, first.Name, again.Name)
		}
		if diff := cmp.Diff(first.Want, again.Want); diff != "" {
			t.Errorf("module %d (-first +again):\n%s", n, diff)
		}
		if first.Family != hostiletest.Families()[n%len(hostiletest.Families())] {
			t.Errorf("module %d is of family %q, want %q", n, first.Family, hostiletest.Families()[n%len(hostiletest.Families())])
		}
	}
}

func TestHostileSpecimensSayHowTheyEnd(t *testing.T) {
	for n := range 10 * len(hostiletest.Families()) {
		sp := hostileAt(n)
		ways := 0
		for _, way := range []bool{sp.Want.Any, sp.Want.Loads, len(sp.Want.Refused) > 0} {
			if way {
				ways++
			}
		}
		if ways != 1 || sp.Name == "" || len(sp.Name) > 300 {
			t.Errorf("module %d, %.300q: %d ways to end, want exactly one and a short name", n, sp.Name, ways)
		}
	}
	names := hostiletest.Families()
	slices.Sort(names)
	if len(slices.Compact(names)) != len(hostiletest.Families()) {
		t.Error("two families have the same name")
	}
}

func TestBoundModulesAreAsLargeAsTheySay(t *testing.T) {
	for _, b := range hostiletest.Bounds() {
		if bytes.Equal(b.Module(b.Most), b.Module(b.Most+1)) {
			t.Errorf("%s: a module at the limit and one beyond are equal", b.Name)
		}
	}
}
