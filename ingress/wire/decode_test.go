package wire_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/kvcache"
)

func decodeOne(t *testing.T, event any) (kvcache.Event, map[string]uint64) {
	t.Helper()
	var b wire.Batch
	if err := wire.DecodeBatch(batch(event), &b); err != nil {
		t.Fatal(err)
	}
	if len(b.Events) == 0 {
		return kvcache.Event{}, b.Drops.Map()
	}
	return b.Events[0], b.Drops.Map()
}

func TestK8_StoresOfEveryLengthAndFormUseAllThatIsKnown(t *testing.T) {
	full := view{Type: "BlockStored", Hashes: []string{"7", "8"}, Tokens: []uint32{1, 2, 3, 4}, BlockSize: 2, Tier: "device"}
	with := func(change func(*view)) view { v := full; change(&v); return v }
	cases := []struct {
		name  string
		event any
		want  view
	}{
		{"array of 4, block size cut", arr{"BlockStored", arr{7, 8}, nil, arr{1, 2, 3, 4}}, full},
		{"array of 5", stored(), full},
		{"array of 6", stored(7), with(func(v *view) { v.LoraID = 7 })},
		{"array of 8", stored(nil, "CPU", "ad"), with(func(v *view) { v.Tier, v.Adapter = "host", "ad" })},
		{"array of 12", stored(nil, "GPU", nil, arr{nil, nil}, 3, "full_attention", nil), with(func(v *view) { v.Group, v.Attention = 3, kvcache.AttentionPrefix })},
		{"array of 15 with unknown tail", stored(nil, "GPU", nil, nil, 0, "mamba", nil, "LOCAL", nil, arr{1}), with(func(v *view) { v.Attention = kvcache.AttentionWindowed })},
		{"nil in every optional place", stored(nil, nil, nil, nil, nil, nil, nil, nil), full},
		{"array with a list of media before the group", stored(nil, nil, nil, nil, arr{nil, nil}, 4, "hologram"), with(func(v *view) { v.Group, v.Attention = 4, kvcache.AttentionUnknown })},
		{"array with nil media before the group", stored(nil, nil, nil, nil, nil, 4), with(func(v *view) { v.Group = 4 })},
		{"array with salt at the adapter's place", stored(nil, nil, obj{{"x", arr{1}}, {"cache_salt", "s"}}), with(func(v *view) { v.Salt = "s" })},
		{"map, type last, unknown keys", obj{{"future", obj{{"a", arr{1}}}}, {"token_ids", arr{1, 2, 3, 4}}, {"block_hashes", arr{7, 8}}, {"block_size", 2}, {"cache_salt", "s"}, {"type", "BlockStored"}}, with(func(v *view) { v.Salt = "s" })},
		{"map without block size", obj{{"type", "BlockStored"}, {"token_ids", arr{1, 2, 3, 4}}, {"block_hashes", arr{7, 8}}}, full},
		{"removal array of 2", arr{"BlockRemoved", arr{7, 8}}, view{Type: "BlockRemoved", Hashes: full.Hashes, Tier: "device"}},
		{"removal array of 4", arr{"BlockRemoved", arr{7, 8}, "disk", 1}, view{Type: "BlockRemoved", Hashes: full.Hashes, Tier: "disk", Group: 1}},
		{"clear as map", obj{{"type", "AllBlocksCleared"}}, view{Type: "AllBlocksCleared", Tier: "device"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, drops := decodeOne(t, c.event)
			if d := cmp.Diff(c.want, viewOf(got)); d != "" {
				t.Error(d)
			}
			if len(drops) > 0 {
				t.Errorf("drops %v", drops)
			}
		})
	}
}

func TestBadEventsAreDroppedWithTheirReason(t *testing.T) {
	set := func(key string, val any) obj {
		o := obj{{"type", "BlockStored"}, {"block_hashes", arr{7}}, {"token_ids", arr{1, 2}}, {"block_size", 2}}
		for i := range o {
			if o[i].key == key {
				o[i].val = val
				return o
			}
		}
		return append(o, kv{key, val})
	}
	cases := []struct {
		name  string
		event any
		want  string
	}{
		{"number", 17, "undecodable"},
		{"nil", nil, "undecodable"},
		{"empty array", arr{}, "undecodable"},
		{"empty map", obj{}, "undecodable"},
		{"tag is a number", arr{5, arr{1}}, "undecodable"},
		{"type nil", obj{{"type", nil}}, "undecodable"},
		{"unknown tag", arr{"BlockTouched", 5}, "unknown_event"},
		{"unknown type", obj{{"type", "X"}, {"block_hashes", 5}}, "unknown_event"},
		{"hashes nil", set("block_hashes", nil), "undecodable"},
		{"hash float", set("block_hashes", arr{1.5}), "undecodable"},
		{"hash empty", set("block_hashes", arr{""}), "undecodable"},
		{"hash of 65 bytes", set("block_hashes", arr{bytes.Repeat([]byte{1}, 65)}), "undecodable"},
		{"parent list", set("parent_block_hash", arr{1}), "undecodable"},
		{"tokens nil", set("token_ids", nil), "undecodable"},
		{"token negative", set("token_ids", arr{-1, 2}), "undecodable"},
		{"token over 32 bits", set("token_ids", arr{uint64(1 << 32), 2}), "undecodable"},
		{"token text", set("token_ids", arr{"a"}), "undecodable"},
		{"pairs that do not join", set("token_ids", arr{raw{0x92, 1, 2}, raw{0x92, 3, 4}}), "undecodable"},
		{"pair of three", set("token_ids", arr{raw{0x93, 1, 2, 3}}), "undecodable"},
		{"block size negative", set("block_size", -1), "undecodable"},
		{"block size huge", set("block_size", uint64(1<<62)), "undecodable"},
		{"block size text", set("block_size", "2"), "undecodable"},
		{"group negative", set("group_idx", -1), "undecodable"},
		{"medium number", set("medium", 1), "undecodable"},
		{"unknown medium", set("medium", "HOLOGRAM"), "unknown_medium"},
		{"remote", set("locality", "REMOTE"), "remote_locality"},
		{"unknown locality", set("locality", "MOON"), "remote_locality"},
		{"extra keys text", set("extra_keys", "x"), "undecodable"},
		{"extra keys of a block text", set("extra_keys", arr{"x"}), "undecodable"},
		{"adapter number", set("lora_name", 4), "undecodable"},
		{"adapter too long", set("lora_name", string(make([]byte, 5000))), "undecodable"},
		{"no block size, not divisible", arr{"BlockStored", arr{7, 8}, nil, arr{1, 2, 3}}, "undecodable"},
		{"removal without hashes", obj{{"type", "BlockRemoved"}}, "undecodable"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var b wire.Batch
			if err := wire.DecodeBatch(batch(c.event, arr{"BlockRemoved", arr{9}}), &b); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(map[string]uint64{c.want: 1}, b.Drops.Map()); d != "" {
				t.Error(d)
			}
			if len(b.Events) != 1 || b.Events[0].Kind != kvcache.Removed {
				t.Errorf("the event behind the bad one is lost: %v", b.Events)
			}
		})
	}
}

func TestK7_HashesOfEveryFormAreAccepted(t *testing.T) {
	long := bytes.Repeat([]byte{0xab}, 32)
	e, drops := decodeOne(t, arr{"BlockStored", arr{-3803038269031200164, uint64(14643705804678351453), long, string(long[:16])}, long, arr{}, 0})
	if len(drops) > 0 {
		t.Fatalf("drops %v", drops)
	}
	want := []string{"14643705804678351452", "14643705804678351453", "x:" + string(bytes.Repeat([]byte("ab"), 32)), "x:" + string(bytes.Repeat([]byte("ab"), 16))}
	if d := cmp.Diff(want, viewOf(e).Hashes); d != "" {
		t.Error(d)
	}
	if e.Parent != e.Hashes[2] {
		t.Errorf("parent %v differs from the equal hash", e.Parent)
	}
}

func TestCorruptPayloadsGiveAnErrorAndNoEvent(t *testing.T) {
	good := batch(arr{"AllBlocksCleared"})
	deep := append(bytes.Repeat([]byte{0x91}, 200), 0xc0)
	cases := map[string][]byte{
		"empty": nil, "string": pack("hello"), "map": pack(obj{{"ts", 1.0}}), "one element": pack(arr{1.0}), "nil events": pack(arr{1.0, nil}),
		"truncated": good[:len(good)-3], "trailing": append(bytes.Clone(good), 1), "array longer than the payload": {0xdd, 0x7f, 0xff, 0xff, 0xff},
		"events longer than the payload": {0x92, 0, 0xdd, 0xff, 0xff, 0xff, 0xff}, "invalid byte": {0x92, 0xc1, 0x90},
		"nested too deep":           append(append([]byte{0x93, 0, 0x91}, deep...), 0),
		"text beyond the end":       {0x93, 0, 0x91, 0x91, 0xdb, 0xff, 0xff, 0xff, 0xff},
		"extension beyond the end":  {0x92, 0xc9, 0xff, 0xff, 0xff, 0xff, 1, 0x90},
		"bad event then truncation": {0x93, 0, 0x92, 0x05, 0x92},
	}
	for name, payload := range cases {
		t.Run(name, func(t *testing.T) {
			var b wire.Batch
			err := wire.DecodeBatch(payload, &b)
			if !errors.Is(err, wire.ErrCorrupt) || len(b.Events) != 0 {
				t.Errorf("error %v, %d events", err, len(b.Events))
			}
		})
	}
}

func TestK15_TheBatchTellsItsRank(t *testing.T) {
	for _, c := range []struct {
		rank any
		want uint64
		has  bool
	}{{3, 3, true}, {nil, 0, false}, {-1, ^uint64(0), true}, {"x", ^uint64(0), true}} {
		var b wire.Batch
		if err := wire.DecodeBatch(pack(arr{1.0, arr{}, c.rank, "future"}), &b); err != nil {
			t.Fatal(err)
		}
		if b.Rank != c.want || b.HasRank != c.has {
			t.Errorf("rank %v read as %d (%v)", c.rank, b.Rank, b.HasRank)
		}
	}
}

func TestFramesAreChecked(t *testing.T) {
	eight := wire.SequenceFrame(5)
	if seq, payload, err := wire.ParseLive([][]byte{nil, eight, {1}}); err != nil || seq != 5 || len(payload) != 1 {
		t.Errorf("live = %d, %v, %v", seq, payload, err)
	}
	for name, frames := range map[string][][]byte{
		"one": {eight}, "two": {eight, {1}}, "four": {nil, eight, {1}, {2}}, "short number": {nil, eight[:7], {1}}, "long number": {nil, append(eight, 0), {1}},
		"end mark": {nil, wire.SequenceFrame(wire.EndOfReplay), {1}},
	} {
		if _, _, err := wire.ParseLive(frames); !errors.Is(err, wire.ErrCorrupt) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for name, frames := range map[string][][]byte{"bare": {eight, {1}}, "old": {nil, eight, {1}}, "new": {nil, []byte("topic"), eight, {1}}} {
		if seq, _, end, err := wire.ParseReply(frames); err != nil || seq != 5 || end {
			t.Errorf("reply %s = %d, %v, %v", name, seq, end, err)
		}
	}
	if _, _, end, err := wire.ParseReply([][]byte{nil, wire.SequenceFrame(wire.EndOfReplay), nil}); err != nil || !end {
		t.Errorf("end mark: %v, %v", end, err)
	}
	for _, frames := range [][][]byte{{eight}, {nil, nil, nil, eight, nil}, {nil, {1}, nil}} {
		if _, _, _, err := wire.ParseReply(frames); !errors.Is(err, wire.ErrCorrupt) {
			t.Errorf("reply of %d frames: error %v", len(frames), err)
		}
	}
}
