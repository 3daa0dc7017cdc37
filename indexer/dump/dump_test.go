package dump_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/dump"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/indexer/indextest"
	"github.com/routerd/routerd/kvcache"
)

var key = fleet.PartitionKey{Model: "a:b", Group: "g:h"}

// hop takes an index through a dump into a new one.
func hop(t testing.TB, from indexer.Indexer, blockSize int) indexer.Indexer {
	t.Helper()
	var text bytes.Buffer
	if err := dump.Write(&text, []dump.Partition{{Key: key, BlockSize: blockSize, Index: from}}); err != nil {
		t.Fatal(err)
	}
	got, err := dump.Read(&text, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	x := got[key.String()]
	if x == nil || x.BlockSize != blockSize {
		t.Fatalf("got %+v", got)
	}
	to := exact.New(blockSize)
	for w, r := range x.Ranks {
		if lost := to.Restore(w, r.Rest, slices.Values(r.Changes)); lost != 0 {
			t.Fatalf("%d blocks of %s are lost", lost, w)
		}
	}
	return to
}

// I3, through a dump: an index that was handed over answers as the plain model does,
// and goes on so.
func TestI3_AnIndexThatWasHandedOverEqualsThePlainModel(t *testing.T) {
	indextest.Run(t, func(blockSize int) indexer.Indexer {
		return indextest.Restless(exact.New(blockSize), func(x indexer.Indexer) indexer.Indexer { return hop(t, x, blockSize) })
	}, indextest.Seeds(30))
}

func number(n uint64) kvcache.EngineHash { return kvcache.NumberHash(n) }

// held is an index in which worker 1 holds two blocks on its devices and one, of a
// hash of bytes, behind them in its host memory.
func held(t *testing.T) *exact.Index {
	t.Helper()
	x := exact.New(4)
	bytes, ok := kvcache.BytesHash([]byte{0xab, 1})
	if !ok {
		t.Fatal("no hash")
	}
	x.Apply(fleet.Worker{ID: 1}, []kvcache.Event{
		{Kind: kvcache.Stored, Hashes: []kvcache.EngineHash{number(101), number(102)}, Tokens: []uint32{1, 2, 3, 4, 5, 6, 7, 8}, BlockSize: 4},
		{Kind: kvcache.Stored, Tier: kvcache.Host, Hashes: []kvcache.EngineHash{bytes}, Parent: number(102), HasParent: true, Tokens: []uint32{9, 10, 11, 12}, BlockSize: 4},
	})
	return x
}

// The form is that of Dynamo's /dump: the same two events there give the same text
// but for the order of the tiers and what a block's events are called by.
func TestADumpHasTheFormOfDynamos(t *testing.T) {
	var text strings.Builder
	if err := dump.Write(&text, []dump.Partition{{Key: fleet.PartitionKey{Model: "m", Group: "default"}, BlockSize: 4, Index: held(t)}}); err != nil {
		t.Fatal(err)
	}
	const want = `{"m:default":{"block_size":4,"events":[` +
		`{"worker_id":1,"storage_tier":"device","residency_domain":"worker","event":{"event_id":0,"data":{"stored":{"parent_hash":null,"start_position":null,"blocks":[{"block_hash":101,"tokens_hash":14643705804678351452,"mm_extra_info":null},{"block_hash":102,"tokens_hash":16777012769546811212,"mm_extra_info":null}]}},"dp_rank":0}},` +
		`{"worker_id":1,"storage_tier":"host_pinned","residency_domain":"worker","event":{"event_id":1,"data":{"stored":{"parent_hash":102,"start_position":null,"blocks":[{"block_hash":"x:ab01","tokens_hash":483935686894639516,"mm_extra_info":null}]}},"dp_rank":0}}],` +
		`"ranks":[{"worker_id":1,"dp_rank":0,"main_group":0,"right_size":true}]}}`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// What a peer sends is read whole or refused.
func TestADumpThatIsNoneIsRefused(t *testing.T) {
	for text, says := range map[string]string{
		``:                                      "EOF",
		`[]`:                                    `"{" is expected`,
		`{"m:g":{"events":[`:                    "EOF",
		`{"m":{}}`:                              "MODEL:GROUP",
		`{"m:g":{"events":{}}}`:                 `"[" is expected`,
		`{"m:g":{"events":[{"worker_id":-1}]}}`: "id",
		`{"m:g":{"events":[{"worker_id":1,"storage_tier":"device","event":{"data":{"stored":{"blocks":[{"block_hash":"x:zz"}]}}}}]}}`: "engine hash",
		`{"m:g":{"events":[{"worker_id":1,"storage_tier":"device","event":{"data":{"stored":{"blocks":[{"tokens_hash":3}]}}}}]}}`:     "no block_hash",
		`{"m:g":{"ranks":{}}}`: `"[" is expected`,
	} {
		if _, err := dump.Read(strings.NewReader(text), 1<<20); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", text, err, says)
		}
	}
	for _, text := range []string{
		`{"` + strings.Repeat("m", 20<<20) + `:g":{}}`, `{` + strings.Repeat(" ", 20<<20) + `}`,
	} {
		if _, err := dump.Read(strings.NewReader(text), 1<<30); !errors.Is(err, dump.ErrTooLarge) {
			t.Errorf("a value of %d bytes: got %v", len(text), err)
		}
	}
	if _, err := dump.Read(strings.NewReader(`{"m:g":{"block_size":4,"events":[]}}`), 10); !errors.Is(err, dump.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

// What it takes to read a value is bounded by that, not by what the peer sends at once.
func TestAValueOfADumpIsBounded(t *testing.T) {
	for size, fits := range map[int]bool{dump.MaxValue: true, dump.MaxValue + 1: false, dump.MaxValue * 3 / 2: false} {
		value := `{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}`
		got, err := dump.Read(strings.NewReader(`{"m:g":{"new":`+value+`,"block_size":4,"events":[]}}`), 1<<30)
		if fits && (err != nil || got["m:g"].BlockSize != 4) || !fits && !errors.Is(err, dump.ErrTooLarge) {
			t.Errorf("a value of %d bytes: got %v", len(value), err)
		}
	}
}

// However much of a rank cannot be indexed, what is written can be read.
func TestARankWithManyUnmatchableHashesIsHandedOver(t *testing.T) {
	x, w := exact.New(4), fleet.Worker{ID: 1, Rank: 2}
	const events, each = 410, 1000
	for n := range events {
		e := kvcache.Event{Kind: kvcache.Stored, Tokens: make([]uint32, 4*each), BlockSize: 4, Opaque: true}
		for i := range each {
			e.Hashes = append(e.Hashes, number(math.MaxUint64-uint64(n*each+i))) // of 20 digits
		}
		if n == events-1 {
			e.Tier = kvcache.Disk
		}
		x.Apply(w, []kvcache.Event{e})
	}
	x.Apply(w, []kvcache.Event{{Kind: kvcache.Stored, Hashes: []kvcache.EngineHash{number(1)}, Tokens: []uint32{1, 2, 3, 4}, BlockSize: 4}})
	want, _ := x.Snapshot(w)
	if n := 21 * len(want.Rest.Opaque[kvcache.Device]); n < dump.MaxValue {
		t.Fatalf("%d bytes of hashes", n)
	}
	got, _ := hop(t, x, 4).Snapshot(w)
	for tier, hashes := range want.Rest.Opaque {
		if !slices.Equal(got.Rest.Opaque[tier], hashes) {
			t.Errorf("tier %d: %d hashes, want %d", tier, len(got.Rest.Opaque[tier]), len(hashes))
		}
	}
	if !got.Rest.Full || !got.Rest.MainKnown {
		t.Errorf("full %v, main known %v", got.Rest.Full, got.Rest.MainKnown)
	}
}

// A rank of which blocks were given up is one of which what is not known costs no trust, here as there.
func TestThatBlocksWereGivenUpIsHandedOver(t *testing.T) {
	x, w := exact.New(4), fleet.Worker{ID: 1, Rank: 2}
	x.Restore(w, indexer.Rest{Evicted: true}, slices.Values([]indexer.Change(nil)))
	if got, ok := hop(t, x, 4).Snapshot(w); !ok || !got.Rest.Evicted {
		t.Errorf("got %+v", got.Rest)
	}
}

// Kinds of events, tiers and fields that this version does not know count for nothing.
func TestADumpOfALaterVersionIsRead(t *testing.T) {
	got, err := dump.Read(strings.NewReader(`{"m:g":{"new":{"a":[1]},"block_size":4,"events":[
		{"worker_id":1,"storage_tier":"tape","event":{"data":{"stored":{"blocks":[{"block_hash":1,"tokens_hash":2}]}}}},
		{"worker_id":1,"storage_tier":"disk","event":{"data":{"cleared":{}}}},
		{"worker_id":"18446744073709551615","storage_tier":"disk","event":{"dp_rank":3,"data":{"removed":{"block_hashes":[5]}}}}]}}`), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	want := []indexer.Change{{Tier: kvcache.Disk, Removed: []kvcache.EngineHash{number(5)}}}
	if diff := cmp.Diff(want, got["m:g"].Ranks[fleet.Worker{ID: 1<<64 - 1, Rank: 3}].Changes, cmp.Comparer(func(a, b kvcache.EngineHash) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// FuzzRead: bytes of a peer never do more than be refused, and what is read can be
// restored.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"m:g":{"block_size":4,"events":[{"worker_id":1,"storage_tier":"device","event":{"data":{"stored":{"parent_hash":7,"salt":3,"blocks":[{"block_hash":101,"tokens_hash":1}]}}}}],"ranks":[{"worker_id":1,"unmatchable":{"disk":["x:00"]}}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := dump.Read(bytes.NewReader(text), 1<<16)
		if err != nil {
			return
		}
		for _, x := range got {
			to := exact.New(4)
			for w, r := range x.Ranks {
				to.Restore(w, r.Rest, slices.Values(r.Changes))
			}
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	x := exact.New(16)
	tokens := make([]uint32, 16*100)
	for w := range 8 {
		for chain := range 200 {
			for i := range tokens {
				tokens[i] = uint32(chain*7919 + i)
			}
			hashes := make([]kvcache.EngineHash, 100)
			for i := range hashes {
				hashes[i] = number(uint64(w)<<40 | uint64(chain)<<20 | uint64(i))
			}
			x.Apply(fleet.Worker{ID: fleet.WorkerID(w + 1)}, []kvcache.Event{{Kind: kvcache.Stored, Hashes: hashes, Tokens: tokens, BlockSize: 16}})
		}
	}
	var n countBytes
	for b.Loop() {
		n = 0
		if err := dump.Write(&n, []dump.Partition{{Key: key, BlockSize: 16, Index: x}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/160_000, "B/block")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/160_000, "ns/block")
}

type countBytes int64

func (n *countBytes) Write(p []byte) (int, error) { *n += countBytes(len(p)); return len(p), nil }
