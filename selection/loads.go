package selection

import (
	"context"

	"github.com/routerd/routerd/core"
)

// loads shows the projected load of every schedulable rank, and what waits.
func (s *Server) loads(_ context.Context, x *exchange) error {
	wanted := x.wantedPartition()
	out := []partitionLoads{}
	for _, p := range s.parts.Core.Partitions() {
		if !wanted(p.Key()) {
			continue
		}
		one := partitionLoads{ModelName: p.Model, RoutingGroup: p.Group, Loads: []rankLoad{}}
		for i := range p.Ranks {
			r := &p.Ranks[i]
			if r.Lifecycle != core.Ready {
				continue
			}
			one.Loads = append(one.Loads, rankLoad{
				WorkerID: r.Worker, DpRank: r.Rank, PotentialPrefillTokens: r.Load.PrefillTokens,
				PotentialDecodeBlocks: wholeBlocks(r.Load.DecodeBlocks), ActiveRequests: r.Load.ActiveRequests,
			})
		}
		for _, q := range p.Queue {
			one.PendingCount += q.Requests
			one.PendingIslTokens += q.Tokens
		}
		out = append(out, one)
	}
	return x.reply(200, out)
}

// potentialLoads shows what the loads would be with a prompt.
func (s *Server) potentialLoads(ctx context.Context, x *exchange) error {
	b, q, err := s.lookUp(x)
	if err != nil {
		return err
	}
	defer s.bodies.done(b)
	loads, err := s.parts.Core.PotentialLoads(ctx, &q)
	if err != nil {
		return s.inDynamosWords(err, b)
	}
	out := make([]rankLoad, len(loads))
	for i, l := range loads {
		out[i] = rankLoad{
			WorkerID: l.Worker.ID, DpRank: l.Worker.Rank, PotentialPrefillTokens: l.PrefillTokens,
			PotentialDecodeBlocks: wholeBlocks(l.DecodeBlocks), ActiveRequests: l.ActiveRequests,
		}
	}
	return x.reply(200, out)
}
