package kvcache_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/kvcache"
)

func TestMediumNamesMapToTiersWithoutRegardToCase(t *testing.T) {
	cases := map[string]kvcache.Tier{
		"": kvcache.Device, "GPU": kvcache.Device, "gpu": kvcache.Device, "Device": kvcache.Device,
		"CPU": kvcache.Host, "cpu_pinned": kvcache.Host, "CPU_TIER1": kvcache.Host,
		"CPU_TIER2": kvcache.Disk, "disk": kvcache.Disk, "NVME": kvcache.Disk, "STORAGE": kvcache.Disk, "FS": kvcache.Disk, "obj": kvcache.Disk,
		"EXTERNAL": kvcache.Shared, "network": kvcache.Shared, "REMOTE": kvcache.Shared, "Shared": kvcache.Shared,
	}
	for name, want := range cases {
		if got, ok := kvcache.ParseMedium(name); !ok || got != want {
			t.Errorf("ParseMedium(%q) = %v, %v; want %v", name, got, ok, want)
		}
	}
	for _, name := range []string{"HOLOGRAM", "GPU ", "G"} {
		if got, ok := kvcache.ParseMedium(name); ok {
			t.Errorf("ParseMedium(%q) = %v, want it refused", name, got)
		}
	}
}

func TestEngineHashesCompareByTheir64BitPattern(t *testing.T) {
	signed := int64(-3803038269031200164)
	if kvcache.NumberHash(uint64(signed)) != kvcache.NumberHash(14643705804678351452) {
		t.Error("signed and unsigned form of one pattern differ")
	}
	raw, ok := kvcache.BytesHash([]byte{0xab, 0x01})
	if !ok || raw.String() != "x:ab01" {
		t.Errorf("byte hash = %v, %v", raw, ok)
	}
	if got := kvcache.NumberHash(1 << 63).String(); got != "9223372036854775808" {
		t.Errorf("number prints as %s", got)
	}
	if kvcache.NumberHash(^uint64(0)).Compare(raw) >= 0 || raw.Compare(raw) != 0 {
		t.Error("numbers do not sort before byte strings")
	}
}

func TestEngineHashBytesAreBounded(t *testing.T) {
	for n, want := range map[int]bool{0: false, 1: true, 64: true, 65: false} {
		if _, ok := kvcache.BytesHash(bytes.Repeat([]byte{1}, n)); ok != want {
			t.Errorf("BytesHash of %d bytes accepted = %v, want %v", n, ok, want)
		}
	}
}

func TestDropReasonsHaveDistinctNames(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range kvcache.DropReasons() {
		if r.String() == "" || r.String() == "unknown" || seen[r.String()] {
			t.Errorf("reason %d has the name %q", r, r)
		}
		seen[r.String()] = true
	}
	var c, d kvcache.DropCounts
	c[kvcache.DropUnknownParent] = 3
	d.Add(&c)
	d.Add(&c)
	if diff := cmp.Diff(map[string]uint64{"unknown_parent": 6}, d.Map()); diff != "" {
		t.Error(diff)
	}
}

func TestNamesOfTiersAndKinds(t *testing.T) {
	got := []string{
		kvcache.Device.String(), kvcache.Host.String(), kvcache.Disk.String(), kvcache.Shared.String(), kvcache.Tier(9).String(),
		kvcache.Stored.String(), kvcache.Removed.String(), kvcache.Cleared.String(),
	}
	want := []string{"device", "host", "disk", "shared", "unknown", "stored", "removed", "cleared"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
