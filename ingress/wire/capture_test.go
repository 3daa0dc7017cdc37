package wire_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/ingress/wire"
	"github.com/routerd/routerd/ingress/wire/wiretest"
	"github.com/routerd/routerd/kvcache"
)

// view is an event in the words of the captures' descriptions.
type view struct {
	Type, Parent, Tier, Adapter, Salt string
	Hashes                            []string
	Tokens                            []uint32
	Bigram                            bool
	BlockSize                         int
	LoraID                            int64
	Group                             int32
	Attention                         kvcache.Attention
}

func viewOf(e kvcache.Event) view {
	v := view{
		Type:   map[kvcache.EventKind]string{kvcache.Stored: "BlockStored", kvcache.Removed: "BlockRemoved", kvcache.Cleared: "AllBlocksCleared"}[e.Kind],
		Tier:   e.Tier.String(),
		Tokens: append([]uint32(nil), e.Tokens...), Bigram: e.Bigram, BlockSize: e.BlockSize,
		Adapter: e.Adapter, LoraID: e.LoraID, Salt: e.Salt, Group: e.Group, Attention: e.Attention,
	}
	for _, h := range e.Hashes {
		v.Hashes = append(v.Hashes, h.String())
	}
	if e.HasParent {
		v.Parent = e.Parent.String()
	}
	return v
}

func wantView(t *testing.T, e wiretest.Event) view {
	tier, ok := kvcache.ParseMedium(e.Medium)
	if !ok {
		t.Fatalf("medium %q in a description", e.Medium)
	}
	v := view{
		Type: e.Type, Tier: tier.String(), BlockSize: e.BlockSize, Adapter: e.LoraName, LoraID: e.LoraID, Salt: e.Salt, Group: e.Group,
		Attention: map[string]kvcache.Attention{"": kvcache.AttentionUnnamed, "full_attention": kvcache.AttentionPrefix, "sliding_window": kvcache.AttentionWindowed}[e.Kind],
	}
	if strings.Contains(string(e.ExtraKeys), "tenant-salt") {
		v.Salt = "tenant-salt"
	}
	for _, h := range e.Hashes {
		v.Hashes = append(v.Hashes, wiretest.Hash(t, h))
	}
	if e.Parent != nil {
		v.Parent = wiretest.Hash(t, *e.Parent)
	}
	for i, raw := range e.Tokens {
		var pair []uint32
		if json.Unmarshal(raw, &pair) == nil {
			v.Bigram = true
			if i == 0 {
				v.Tokens = append(v.Tokens, pair[0])
			}
			v.Tokens = append(v.Tokens, pair[1])
			continue
		}
		var id uint32
		if err := json.Unmarshal(raw, &id); err != nil {
			t.Fatal(err)
		}
		v.Tokens = append(v.Tokens, id)
	}
	return v
}

func TestEveryCaptureHasItsDescription(t *testing.T) {
	names := map[string]int{}
	for _, ending := range []string{".bin", ".json"} {
		files, err := filepath.Glob(filepath.Join(wiretest.Dir(), "*"+ending))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			names[strings.TrimSuffix(filepath.Base(f), ending)]++
		}
	}
	for name, n := range names {
		if n != 2 {
			t.Errorf("%s lacks its bytes or its description", name)
		}
	}
}

func TestEveryCaptureDecodesAsDescribed(t *testing.T) {
	for _, name := range wiretest.Names(t, "*") {
		if strings.Contains(name, "_replay_") || strings.HasPrefix(name, "malformed") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			want := wiretest.Description(t, name)
			messages := wiretest.Messages(t, name)
			if strings.HasPrefix(name, "workload") {
				return
			}
			if len(messages) != len(want.Messages) {
				t.Fatalf("%d messages, %d described", len(messages), len(want.Messages))
			}
			var b wire.Batch
			for i, frames := range messages {
				compareMessage(t, i, frames, want, &b)
			}
		})
	}
}

func compareMessage(t *testing.T, i int, frames [][]byte, want wiretest.Want, b *wire.Batch) {
	t.Helper()
	m := want.Messages[i]
	seq, payload, err := wire.ParseLive(frames)
	if err != nil {
		t.Fatalf("message %d: %v", i, err)
	}
	if err := wire.DecodeBatch(payload, b); err != nil {
		t.Fatalf("message %d: %v", i, err)
	}
	if got := strconv.FormatUint(seq, 10); got != m.Seq {
		t.Errorf("message %d: number %s, want %s", i, got, m.Seq)
	}
	if b.HasRank != (m.DPRank != nil) || b.HasRank && b.Rank != *m.DPRank {
		t.Errorf("message %d: rank %d (%v)", i, b.Rank, b.HasRank)
	}
	var got, expect []view
	for _, e := range b.Events {
		got = append(got, viewOf(e))
	}
	remote := uint64(0)
	for _, e := range m.Events {
		if e.Locality == "REMOTE" {
			remote++
			continue
		}
		expect = append(expect, wantView(t, e))
	}
	if d := cmp.Diff(expect, got); d != "" {
		t.Errorf("message %d: %s", i, d)
	}
	var drops kvcache.DropCounts
	drops[kvcache.DropRemoteLocality] = remote
	if d := cmp.Diff(drops.Map(), b.Drops.Map()); d != "" {
		t.Errorf("message %d drops: %s", i, d)
	}
}

func TestK4_ReplayAnswersOfBothShapesAreUnderstood(t *testing.T) {
	for _, name := range wiretest.Names(t, "*_replay_*") {
		t.Run(name, func(t *testing.T) {
			want := wiretest.Description(t, name)
			messages := wiretest.Messages(t, name)
			if got, err := wire.ParseSequence(messages[0][1]); err != nil || strconv.FormatUint(got, 10) != want.RequestStartSeq {
				t.Errorf("request from %d (%v), want %s", got, err, want.RequestStartSeq)
			}
			for i, frames := range messages[1:] {
				seq, payload, end, err := wire.ParseReply(frames)
				if err != nil {
					t.Fatalf("answer %d: %v", i, err)
				}
				w := want.Replies[i]
				if strconv.FormatUint(seq, 10) != w.Seq || len(payload) != w.PayloadBytes || end != w.EndMarker {
					t.Errorf("answer %d: number %d, %d bytes, end %v; want %+v", i, seq, len(payload), end, w)
				}
				var b wire.Batch
				if err := wire.DecodeBatch(payload, &b); !end && err != nil {
					t.Errorf("answer %d: %v", i, err)
				}
			}
		})
	}
}

func TestK13_MalformedMessagesCostThemselvesOnly(t *testing.T) {
	for _, name := range wiretest.Names(t, "malformed_*") {
		want := wiretest.Description(t, name)
		messages := wiretest.Messages(t, name)
		var b wire.Batch
		for _, c := range want.Cases {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				_, payload, err := wire.ParseLive(messages[c.Index])
				if err == nil {
					err = wire.DecodeBatch(payload, &b)
				}
				if drop := c.Expect == "drop_message"; drop != (err != nil) {
					t.Fatalf("error %v, expected %s", err, c.Expect)
				}
				if err != nil && !errors.Is(err, wire.ErrCorrupt) {
					t.Errorf("error %v does not wrap ErrCorrupt", err)
				}
			})
		}
	}
}

func TestK13_DroppedEventsAreCountedAndTheRestDecodes(t *testing.T) {
	messages := wiretest.Messages(t, "malformed_a")
	// The block-size and density faults decode: the index refuses them.
	want := map[int]struct {
		events int
		drops  map[string]uint64
	}{
		10: {1, map[string]uint64{"unknown_event": 1}}, 11: {1, map[string]uint64{"undecodable": 1}},
		12: {0, map[string]uint64{"undecodable": 1}}, 13: {0, map[string]uint64{"undecodable": 1}},
		14: {0, map[string]uint64{"undecodable": 1}}, 15: {0, map[string]uint64{"undecodable": 1}},
		16: {1, map[string]uint64{}}, 17: {0, map[string]uint64{"undecodable": 1}}, 18: {1, map[string]uint64{}},
	}
	var b wire.Batch
	for i, w := range want {
		if err := wire.DecodeBatch(messages[i][2], &b); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if len(b.Events) != w.events {
			t.Errorf("message %d: %d events, want %d", i, len(b.Events), w.events)
		}
		if d := cmp.Diff(w.drops, b.Drops.Map()); d != "" {
			t.Errorf("message %d: %s", i, d)
		}
	}
}
