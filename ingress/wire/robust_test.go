package wire_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/ingress/wire/wiretest"
	"github.com/routerd/routerd/kvcache"
)

func TestDecodingReusesItsBatch(t *testing.T) {
	payload := wiretest.Messages(t, "vllm_0_33_0_chain")[0][2]
	var b wire.Batch
	got := testing.AllocsPerRun(100, func() {
		if err := wire.DecodeBatch(payload, &b); err != nil {
			t.Fatal(err)
		}
	})
	if got > 0 {
		t.Errorf("%v allocations a batch, want 0", got)
	}
}

func TestABatchKeepsNothingOfItsPayload(t *testing.T) {
	compared := 0
	for _, name := range wiretest.Names(t, "*") {
		for i, frames := range wiretest.Messages(t, name) {
			var before, after wire.Batch
			payload := frames[len(frames)-1]
			lent := bytes.Clone(payload)
			if err := errors.Join(wire.DecodeBatch(payload, &before), wire.DecodeBatch(lent, &after)); err != nil {
				continue // another test tells which of them are refused
			}
			compared++
			clear(lent)
			if diff := cmp.Diff(before.Events, after.Events, cmp.AllowUnexported(kvcache.EngineHash{})); diff != "" {
				t.Errorf("%s, message %d: the events change with the payload (-before +after)\n%s", name, i, diff)
			}
		}
	}
	if compared < 100 {
		t.Errorf("%d messages were compared", compared)
	}
}

func TestHostileLengthsReserveNoMemory(t *testing.T) {
	payloads := [][]byte{
		{0xdd, 0x7f, 0xff, 0xff, 0xff},
		{0x92, 0, 0x91, 0x93, 0xab, 'B', 'l', 'o', 'c', 'k', 'S', 't', 'o', 'r', 'e', 'd', 0xdd, 0x7f, 0xff, 0xff, 0xff},
		{0x92, 0, 0x91, 0x81, 0xdb, 0x7f, 0xff, 0xff, 0xff},
	}
	var before, after runtime.MemStats
	var b wire.Batch
	runtime.ReadMemStats(&before)
	for range 100 {
		for _, p := range payloads {
			if err := wire.DecodeBatch(p, &b); err == nil {
				t.Fatal("no error")
			}
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes allocated for 300 payloads of at most 21 bytes", grown)
	}
}

func TestEveryCutAndEveryFlippedByteIsSurvived(t *testing.T) {
	var b wire.Batch
	payloads := map[string][]byte{"media": withMedia()}
	for _, name := range []string{"vllm_0_33_0_groups", "vllm_0_23_0_extra_keys", "sglang_0_5_10_bigram_dp1", "vllm_0_33_0_extra_keys"} {
		payloads[name] = wiretest.Messages(t, name)[0][2]
	}
	for name, payload := range payloads {
		for i := range payload {
			if err := wire.DecodeBatch(payload[:i], &b); !errors.Is(err, wire.ErrCorrupt) {
				t.Fatalf("%s cut at %d: error %v", name, i, err)
			}
			for _, flip := range []byte{0x01, 0x80, 0xff} {
				changed := append([]byte(nil), payload...)
				changed[i] ^= flip
				_ = wire.DecodeBatch(changed, &b)
			}
		}
	}
}

// withMedia is a batch whose blocks have images in both of their forms.
func withMedia() []byte {
	media := arr{obj{{"mm_objects", arr{obj{{"mm_hash", 5}, {"offsets", arr{arr{0, 2}}}}}}}, nil}
	return batch(stored(nil, nil, nil, arr{arr{arr{"image", 0}}, arr{arr{"mm", "other", 1}}}), stored(nil, nil, nil, nil, media))
}

func FuzzDecodeBatch(f *testing.F) {
	for _, name := range wiretest.Names(f, "*") {
		for i, frames := range wiretest.Messages(f, name) {
			if i < 16 && len(frames) > 0 { // of a workload no more
				f.Add(frames[len(frames)-1])
			}
		}
	}
	f.Add(withMedia())
	f.Fuzz(func(t *testing.T, payload []byte) {
		var b wire.Batch
		if err := wire.DecodeBatch(payload, &b); err != nil && len(b.Events) > 0 {
			t.Fatal("an error with events")
		}
		size := 0
		for _, e := range b.Events {
			size += len(e.Tokens) + len(e.Hashes)
			if len(e.Items) > len(e.Hashes) {
				t.Fatal("items beyond the list")
			}
			for _, items := range e.Items {
				size += len(items)
			}
			if e.Opaque && e.OpaqueFrom >= len(e.Hashes) {
				t.Fatal("opaque block beyond the list")
			}
		}
		if size > len(payload) {
			t.Fatalf("%d items out of %d bytes", size, len(payload))
		}
	})
}

func BenchmarkDecodeBatch(b *testing.B) {
	payload := wiretest.Messages(b, "vllm_0_33_0_groups")[0][2]
	var batch wire.Batch
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := wire.DecodeBatch(payload, &batch); err != nil {
			b.Fatal(err)
		}
	}
}
