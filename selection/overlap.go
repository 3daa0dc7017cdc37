package selection

import (
	"context"
	"errors"
	"strconv"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/internal/httpapi"
	"github.com/routerd/routerd/kvcache"
)

// overlapScores shows what each rank holds of a prompt, and what the shared cache
// does.
func (s *Server) overlapScores(ctx context.Context, x *exchange) error {
	b, q, err := s.lookUp(x)
	if err != nil {
		return err
	}
	defer s.bodies.done(b)
	report, err := s.parts.Core.Overlaps(ctx, &q)
	if err != nil {
		return s.inDynamosWords(err, b)
	}
	return x.reply(200, overlapsOf(report))
}

func overlapsOf(report *core.OverlapReport) overlapAnswer {
	out := overlapAnswer{BlockSize: report.BlockSize, NumBlocks: report.Blocks, Workers: make([]rankOverlap, len(report.Ranks)), SharedCache: sharedOf(report)}
	for i := range report.Ranks {
		r := &report.Ranks[i]
		device, host, all := held(&r.Overlap)
		out.Workers[i] = rankOverlap{
			WorkerID: r.Worker.ID, DpRank: r.Worker.Rank, DeviceBlocks: int(device), HostPinnedBlocks: int(host), DiskBlocks: int(all),
			HostPinnedExtensionBlocks: int(host - device), DiskExtensionBlocks: int(all - host),
		}
		if report.SharedAsked && report.SharedErr == nil {
			beyond := int(kvcache.Beyond(report.Shared, r.Overlap.Device))
			out.Workers[i].SharedBeyondDeviceBlocks = &beyond
		}
	}
	return out
}

func sharedOf(report *core.OverlapReport) sharedCache {
	out := sharedCache{Enabled: report.SharedAsked, Ranges: make([][2]uint32, len(report.Shared))}
	for i, r := range report.Shared {
		out.Ranges[i] = [2]uint32{r.Start, r.End}
		out.TotalHitBlocks += int(r.End - r.Start)
	}
	if report.SharedErr != nil {
		text := "the shared cache did not answer" // its own words may hold an address
		out.Error = &text
	}
	return out
}

// query answers from the index alone, for token ids.
func (s *Server) query(ctx context.Context, x *exchange) error {
	b, err := s.bodies.read(x.rc.PostBody(), querySet)
	if err != nil {
		return err
	}
	defer s.bodies.done(b)
	if !b.given.has(fieldTokenIDs) {
		return missing(fieldTokenIDs.name())
	}
	p, _ := b.tokenPrompt()
	return s.answerQuery(ctx, x, b, p)
}

// queryByHash answers from the index alone, for block hashes.
func (s *Server) queryByHash(ctx context.Context, x *exchange) error {
	b, err := s.bodies.read(x.rc.PostBody(), queryByHashSet)
	if err != nil {
		return err
	}
	defer s.bodies.done(b)
	if !b.given.has(fieldBlockHashes) {
		return missing(fieldBlockHashes.name())
	}
	return s.answerQuery(ctx, x, b, core.Prompt{Blocks: b.blocks, Exact: true})
}

func (s *Server) answerQuery(ctx context.Context, x *exchange, b *body, p core.Prompt) error {
	report, err := s.parts.Core.Overlaps(ctx, &core.Lookup{Partition: b.partition, Prompt: p, Adapter: b.adapter})
	if e, ok := errors.AsType[*core.Error](err); ok {
		switch e.Code {
		case core.CodeModelNotFound:
			return &httpapi.Failure{Code: httpapi.CodeNotFound, Message: "no index " + placeOf(b.partition), Details: httpapi.Details{Step: string(e.Code), Item: "model_name"}}
		case core.CodeNoWorkers, core.CodeWorkersEjected: // nobody is there to hold anything
			report, err = &core.OverlapReport{}, nil
		}
	}
	if err != nil {
		return err
	}
	return x.reply(200, holdersOf(report))
}

// holdersOf tells who holds something of a prompt, in tokens.
func holdersOf(report *core.OverlapReport) queryAnswer {
	out := queryAnswer{Scores: map[string]map[string]int{}, Frequencies: []int{}, Instances: map[string]overlap{}}
	size := report.BlockSize
	for i := range report.Ranks {
		r := &report.Ranks[i]
		device, host, all := held(&r.Overlap)
		gpu, cpu, disk := int(device)*size, int(host)*size, int(all)*size
		if disk == 0 {
			continue
		}
		id, rank := r.Worker.ID.String(), strconv.FormatUint(uint64(r.Worker.Rank), 10)
		if gpu > 0 {
			if out.Scores[id] == nil {
				out.Scores[id] = map[string]int{}
			}
			out.Scores[id][rank] = gpu
		}
		has, ok := out.Instances[id]
		if !ok {
			has.DP = map[uint32]int{}
		}
		has.DP[r.Worker.Rank] = gpu
		has.LongestMatched, has.GPU = max(has.LongestMatched, disk), max(has.GPU, gpu)
		has.CPU, has.Disk = max(has.CPU, cpu), max(has.Disk, disk)
		out.Instances[id] = has
	}
	return out
}
