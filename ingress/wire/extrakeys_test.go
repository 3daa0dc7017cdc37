package wire_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/ingress/wire/wiretest"
	"github.com/routerd/routerd/kvcache"
)

// digest is a media identifier as engines make them, and digestItem the item that it stands for.
var digest = "0cf457e24a479f02" + strings.Repeat("a", 48)

const digestItem = 0x0cf457e24a479f02

func TestExtraKeysGiveSaltItemsAndOpaqueBlocks(t *testing.T) {
	image := arr{digest, 3}
	named := xxh3.HashString("cat.png")
	cases := []struct {
		name    string
		adapter any
		keys    any
		salt    string
		items   [][]uint64
		opaque  int // -1: none
	}{
		{"none", nil, arr{nil, nil}, "", nil, -1},
		{"salt", nil, arr{arr{"s"}, nil}, "s", nil, -1},
		{"adapter", "ad", arr{arr{"ad"}, arr{"ad"}}, "", nil, -1},
		{"adapter and salt", "ad", arr{arr{"ad", "s"}, arr{"ad"}}, "s", nil, -1},
		{"adapter that is spelt like the salt", "ad", arr{arr{"ad", "ad"}, arr{"ad"}}, "ad", nil, -1},
		{"image in the second block", nil, arr{arr{"s"}, arr{image}}, "s", [][]uint64{nil, {digestItem}}, -1},
		{"adapter, image and salt in one block", "ad", arr{arr{"ad", image, "s"}, arr{"ad", image}}, "s", [][]uint64{{digestItem}, {digestItem}}, -1},
		{"image and salt in one block", nil, arr{arr{image, "s"}, nil}, "s", [][]uint64{{digestItem}}, -1},
		{"image that a client named", nil, arr{arr{arr{"cat.png", -4}}, nil}, "", [][]uint64{{named}}, -1},
		{"two images in one block", nil, arr{arr{arr{"cat.png", -4}, image}, nil}, "", [][]uint64{{named, digestItem}}, -1},
		{"tagged image", nil, arr{arr{arr{"mm", digest, 3}}, nil}, "", [][]uint64{{digestItem}}, -1},
		{"tagged adapter and salt", nil, arr{arr{arr{"lora", "ad", "/p"}, arr{"cache_salt", "s"}}, nil}, "s", nil, -1},
		{"tagged adapter, image and salt", nil, arr{arr{arr{"lora", "ad", "/p"}, arr{"mm", digest, 0}, arr{"cache_salt", "s"}}, arr{arr{"lora", "ad", "/p"}}}, "s", [][]uint64{{digestItem}}, -1},
		{"second text without adapter", nil, arr{arr{"a", "b"}, nil}, "a", nil, 0},
		{"a third text", "ad", arr{arr{"ad", "s", "x"}, nil}, "s", nil, 0},
		{"text only in a later block", nil, arr{nil, arr{"x"}}, "", nil, 1},
		{"an image's bare digest in a later block", nil, arr{nil, arr{digest}}, "", [][]uint64{nil, {digestItem}}, -1},
		{"a bare digest in the first block is a salt", nil, arr{arr{digest}, nil}, digest, nil, -1},
		{"a tagged salt in a later block", nil, arr{nil, arr{arr{"cache_salt", "s"}}}, "", nil, 1},
		{"identifier without offset", nil, arr{arr{arr{digest}}, nil}, "", nil, 0},
		{"identifier with two offsets", nil, arr{arr{arr{digest, 1, 2}}, nil}, "", nil, 0},
		{"offset text", nil, arr{arr{arr{digest, "3"}}, nil}, "", nil, 0},
		{"unknown tag", nil, arr{arr{arr{"embeds", digest, arr{1}}}, nil}, "", nil, 0},
		{"bytes", nil, arr{arr{[]byte{1, 2}}, nil}, "", nil, 0},
		{"number", nil, arr{nil, arr{5}}, "", nil, 1},
		{"image before what is not understood", nil, arr{arr{image}, arr{5}}, "", [][]uint64{{digestItem}}, 1},
		{"more lists than blocks", nil, arr{nil, nil, arr{image}}, "", nil, -1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e, drops := decodeOne(t, stored(nil, nil, c.adapter, c.keys))
			if len(drops) > 0 {
				t.Fatalf("drops %v", drops)
			}
			if e.Salt != c.salt || e.Opaque != (c.opaque >= 0) || e.Opaque && e.OpaqueFrom != c.opaque {
				t.Errorf("salt %q, opaque %v from %d", e.Salt, e.Opaque, e.OpaqueFrom)
			}
			if d := cmp.Diff(c.items, e.Items); d != "" {
				t.Errorf("items: %s", d)
			}
		})
	}
}

func TestListsOfMediaGiveItems(t *testing.T) {
	object := func(hash any) obj { return obj{{"offsets", arr{arr{0, 2}}}, {"mm_hash", hash}} }
	block := func(objects ...any) obj { return obj{{"mm_objects", arr(objects)}} }
	cases := []struct {
		name   string
		media  arr
		keys   any
		items  [][]uint64
		opaque int // -1: none
	}{
		{"none", arr{nil, nil}, nil, nil, -1},
		{"one", arr{nil, block(object(12345))}, nil, [][]uint64{nil, {12345}}, -1},
		{"two in one block", arr{block(object(7), object(uint64(1<<63))), nil}, nil, [][]uint64{{7, 1 << 63}}, -1},
		{"as signed number", arr{block(object(-1))}, nil, [][]uint64{{1<<64 - 1}}, -1},
		{"a block without objects", arr{block(), block(object(7))}, nil, [][]uint64{nil, {7}}, -1},
		{"unknown fields", arr{obj{{"future", arr{1}}, {"mm_objects", arr{obj{{"mm_hash", 7}, {"x", nil}}}}}}, nil, [][]uint64{{7}}, -1},
		{"the media count where extra keys name them too", arr{block(object(7))}, arr{arr{arr{digest, 0}}}, [][]uint64{{7}}, -1},
		{"extra keys count where the list is empty", arr{nil, nil}, arr{arr{arr{digest, 0}}}, [][]uint64{{digestItem}}, -1},
		{"object without hash", arr{block(object(7)), block(object(7), obj{{"offsets", nil}})}, nil, [][]uint64{{7}}, 1},
		{"hash text", arr{block(object("7"))}, nil, nil, 0},
		{"objects that are none", arr{block(5)}, nil, nil, 0},
		{"block that is a list", arr{nil, arr{obj{{"mm_hash", 5}}}}, nil, nil, 1},
		{"block without the list of objects", arr{obj{{"mm_hash", 5}}}, nil, nil, 0},
	}
	for _, c := range cases {
		for form, event := range map[string]any{
			"array": stored(nil, nil, nil, c.keys, c.media),
			"map": obj{
				{"type", "BlockStored"},
				{"block_hashes", arr{7, 8}},
				{"token_ids", arr{1, 2, 3, 4}},
				{"block_size", 2},
				{"block_mm_infos", c.media},
				{"extra_keys", c.keys},
			},
		} {
			t.Run(c.name+" as "+form, func(t *testing.T) {
				e, drops := decodeOne(t, event)
				if len(drops) > 0 {
					t.Fatalf("drops %v", drops)
				}
				if e.Opaque != (c.opaque >= 0) || e.Opaque && e.OpaqueFrom != c.opaque {
					t.Errorf("opaque %v from %d", e.Opaque, e.OpaqueFrom)
				}
				if d := cmp.Diff(c.items, e.Items); d != "" {
					t.Errorf("items: %s", d)
				}
			})
		}
	}
}

func TestASaltThatTheKeysContradictMakesAllBlocksOpaque(t *testing.T) {
	for salt, opaque := range map[string]bool{"s": false, "other": true} {
		e, _ := decodeOne(t, obj{
			{"type", "BlockStored"},
			{"block_hashes", arr{7, 8}},
			{"token_ids", arr{1, 2, 3, 4}},
			{"block_size", 2},
			{"cache_salt", "s"},
			{"extra_keys", arr{arr{salt}, nil}},
		})
		if e.Salt != "s" || e.Opaque != opaque || e.OpaqueFrom != 0 {
			t.Errorf("extra key %q beside the salt s: salt %q, opaque %v from %d", salt, e.Salt, e.Opaque, e.OpaqueFrom)
		}
	}
}

func TestItemsOfOneEventStayWhenTheNextIsRead(t *testing.T) {
	event := func(id string) arr { return stored(nil, nil, nil, arr{arr{arr{id, 0}}, arr{arr{id, 0}}}) }
	var b wire.Batch
	var events arr
	for i := range 50 {
		events = append(events, event(strings.Repeat("x", i)))
	}
	for range 2 { // a batch that is reused
		if err := wire.DecodeBatch(batch(events...), &b); err != nil {
			t.Fatal(err)
		}
		for i, e := range b.Events {
			want := xxh3.HashString(strings.Repeat("x", i))
			if d := cmp.Diff([][]uint64{{want}, {want}}, e.Items); d != "" {
				t.Fatalf("event %d: %s", i, d)
			}
		}
	}
}

// matched is how much of a prompt an index finds on worker.
func matched(t *testing.T, x *exact.Index, tokens []uint32, size int, salt string, items ...[]uint64) uint32 {
	t.Helper()
	blocks, err := kvcache.Hashing{Seed: kvcache.Seed("", salt), Items: items}.Blocks(nil, tokens, size)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]kvcache.Overlap, 1)
	x.Find(blocks, []fleet.Worker{worker}, out)
	return out[0].Device
}

func TestRecordedImagesAreMatchedByTheirHash(t *testing.T) {
	names := wiretest.Names(t, "*_extra_keys")
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			want := wiretest.Description(t, name)
			x := exact.New(16)
			if drops := feed(t, x, wiretest.Messages(t, name)); drops != (kvcache.DropCounts{}) {
				t.Errorf("drops %v", drops.Map())
			}
			tokens := wantView(t, want.Messages[0].Events[0]).Tokens
			for _, q := range []struct {
				what, salt string
				items      [][]uint64
				want       uint32
			}{
				{"the image", "tenant-salt", [][]uint64{nil, {digestItem}}, 3},
				{"no image", "tenant-salt", nil, 1},
				{"another image", "tenant-salt", [][]uint64{nil, {digestItem + 1}}, 1},
				{"the image twice", "tenant-salt", [][]uint64{nil, {digestItem, digestItem}}, 1},
				{"the image a block later", "tenant-salt", [][]uint64{nil, nil, {digestItem}}, 1},
				{"the image of another tenant", "", [][]uint64{nil, {digestItem}}, 0},
			} {
				if got := matched(t, x, tokens, 16, q.salt, q.items...); got != q.want {
					t.Errorf("%s: %d blocks, want %d", q.what, got, q.want)
				}
			}
		})
	}
	if len(names) < 3 {
		t.Errorf("%d captures", len(names))
	}
}

func TestMediaOfAnEventGiveTheGoldenBlocks(t *testing.T) {
	var b wire.Batch
	err := wire.DecodeBatch(batch(obj{
		{"type", "BlockStored"},
		{"block_hashes", arr{-7, 8}},
		{"parent_block_hash", nil},
		{"token_ids", arr{0, 1, 2, 3, 4, 5, 6, 7}},
		{"block_size", 4},
		{"block_mm_infos", arr{obj{{"mm_objects", arr{obj{{"mm_hash", 12345}, {"offsets", arr{arr{0, 4}}}}}}}, nil}},
	}), &b)
	if err != nil {
		t.Fatal(err)
	}
	x := exact.New(4)
	x.Apply(worker, b.Events)
	out := make([]kvcache.Overlap, 1)
	x.Find([]kvcache.BlockHash{0x5bc1bee95b0f6c1b, 0xa8416cfd935bdb13}, []fleet.Worker{worker}, out)
	if out[0].Device != 2 {
		t.Errorf("found %+v, want both blocks", out[0])
	}
}
