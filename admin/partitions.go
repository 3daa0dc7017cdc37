package admin

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

type partitionList struct {
	Partitions []partitionView `json:"partitions"`
}

type partitionView struct {
	Model     string            `json:"model"`
	Group     string            `json:"group"`
	BlockSize int               `json:"block_size"`
	Policy    core.PolicyRef    `json:"policy"`
	Ranks     []rankView        `json:"ranks"`
	Queue     []core.QueueView  `json:"queue"`
	Sessions  core.SessionsView `json:"sessions"`
}

type rankView struct {
	core.RankView
	KV kvView `json:"kv"`
}

// kvView is the cache of a rank. Blocks always has the tiers of a worker.
type kvView struct {
	Source  string         `json:"source,omitempty"`
	Blocks  map[string]int `json:"blocks"`
	Trusted bool           `json:"trusted"`
	// Untrusted says why it is not trusted, where that is known.
	Untrusted string              `json:"untrusted,omitempty"`
	LastSeq   uint64              `json:"last_seq"`
	Dropped   map[string]uint64   `json:"dropped"`
	Hashes    map[string][]string `json:"hashes,omitempty"`
}

func (s *Server) listPartitions(_ context.Context, x *exchange) error {
	blocks, err := x.flag("blocks")
	if err != nil {
		return err
	}
	model, group := x.query.Get("model"), x.query.Get("group")
	out := partitionList{Partitions: []partitionView{}}
	for _, p := range s.parts.Partitions.Partitions() {
		if model != "" && p.Model != model || group != "" && p.Group != group {
			continue
		}
		v := partitionView{Model: p.Model, Group: p.Group, BlockSize: p.BlockSize, Policy: p.Policy, Ranks: []rankView{}, Queue: p.Queue, Sessions: p.Sessions}
		if v.Queue == nil {
			v.Queue = []core.QueueView{}
		}
		for _, r := range p.Ranks {
			if r.Reasons == nil {
				r.Reasons = []string{}
			}
			kv := s.parts.Kv.Status(p.Key(), fleet.Worker{ID: r.Worker, Rank: r.Rank}, blocks)
			v.Ranks = append(v.Ranks, rankView{r, viewKV(kv, blocks)})
		}
		out.Partitions = append(out.Partitions, v)
	}
	return x.reply(fasthttp.StatusOK, out)
}

func viewKV(kv KV, hashes bool) kvView {
	v := kvView{Source: kv.Source, Blocks: map[string]int{}, Trusted: kv.Trusted, Untrusted: kv.Untrusted, LastSeq: kv.LastSeq, Dropped: kv.Dropped}
	if v.Dropped == nil {
		v.Dropped = map[string]uint64{}
	}
	if hashes {
		v.Hashes = map[string][]string{kvcache.Device.String(): {}}
	}
	for _, t := range kvcache.AllTiers() {
		name := t.String()
		// Shared memory is no worker's own: it shows only where events named it.
		if n := kv.Blocks[name]; n > 0 || t != kvcache.Shared {
			v.Blocks[name] = n
		}
		if h := kv.Hashes[name]; hashes && len(h) > 0 {
			v.Hashes[name] = h
		}
	}
	return v
}
