package selection

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/kvcache"
)

// The answers of a selection are written by hand: they are the surface's hot path.

// unknownCapacity is the prefill capacity of a worker that gives none.
const unknownCapacity = 10_000_000

// appendSelected writes a selectAnswer; id is the caller's, empty for none.
func appendSelected(dst []byte, sel *core.Selection, id string, advisory bool) []byte {
	dst = append(dst, '{')
	if id != "" {
		dst = append(appendText(append(dst, `"selection_id":`...), id), ',')
	}
	dst = appendChoice(dst, sel)
	if advisory {
		dst = appendWorkerLoad(dst, sel.Detail)
	}
	return append(dst, '}')
}

// appendBooked writes a bookedAnswer.
func appendBooked(dst []byte, sel *core.Selection, tracked bool) []byte {
	dst = appendText(append(dst, `{"selection_id":`...), sel.ID)
	dst = append(dst, `,"sequence_hashes":[`...)
	for i, h := range sel.Detail.Sequences {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(h), 10)
	}
	dst = appendCount(dst, `],"isl_tokens":`, int64(sel.PromptTokens))
	dst = append(dst, `,"track_prefill_tokens":`...)
	dst = append(strconv.AppendBool(dst, tracked), ',')
	return append(appendChoice(dst, sel), '}')
}

// appendChoice writes the fields that all selections have.
func appendChoice(dst []byte, sel *core.Selection) []byte {
	d, size := sel.Detail, int64(sel.BlockSize)
	dst = appendText(append(dst, `"model_name":`...), sel.Partition.Model)
	dst = appendText(append(dst, `,"routing_group":`...), sel.Partition.Group)
	dst = append(dst, `,"worker_id":`...)
	dst = strconv.AppendUint(dst, uint64(sel.Worker.ID), 10)
	dst = appendCount(dst, `,"dp_rank":`, int64(sel.Worker.Rank))
	dst = appendText(append(dst, `,"endpoint":`...), sel.Endpoint)
	dst = appendCount(dst, `,"block_size":`, size)
	gpu, cpu, disk := mostHeld(d.Ranks)
	gpu, cpu, disk = size*gpu, size*cpu, size*disk
	dst = appendCount(dst, `,"overlap":{"longest_matched":`, disk)
	dst = appendCount(dst, `,"gpu":`, gpu)
	dst = append(dst, `,"dp":{`...)
	for i := range d.Ranks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendCount(dst, `"`, int64(d.Ranks[i].Worker.Rank))
		dst = appendCount(dst, `":`, size*int64(d.Ranks[i].Overlap.Device))
	}
	dst = appendCount(dst, `},"cpu":`, cpu)
	dst = appendCount(dst, `,"disk":`, disk)
	dst = appendCount(dst, `},"effective_prefill_tokens":`, int64(d.UncachedTokens))
	dst = appendCount(dst, `,"potential_decode_blocks":`, wholeBlocks(d.DecodeBlocks))
	return appendTruth(dst, `,"decode_busy":`, d.DecodeBusy)
}

// mostHeld are the most blocks that a rank of the worker holds, by where: each may be
// another rank's.
func mostHeld(ranks []core.RankOverlap) (device, host, all int64) {
	for i := range ranks {
		d, h, a := held(&ranks[i].Overlap)
		device, host, all = max(device, d), max(host, h), max(all, a)
	}
	return device, host, all
}

// held are the blocks of a prompt on the device, there or on the host, and anywhere.
func held(o *kvcache.Overlap) (device, host, all int64) {
	device = int64(o.Device)
	host = device + int64(o.Host)
	return device, host, host + int64(o.Disk) + int64(o.Shared)
}

func appendWorkerLoad(dst []byte, d *core.Detail) []byte {
	capacity := int64(d.MaxBatchedTokens)
	if capacity == 0 {
		capacity = unknownCapacity
	}
	dst = appendCount(dst, `,"worker_load":{"active_prefill_tokens":`, d.PrefillTokens)
	dst = appendCount(dst, `,"prefill_token_capacity":`, capacity)
	if d.TotalKVBlocks > 0 {
		dst = appendCount(dst, `,"total_kv_blocks":`, int64(d.TotalKVBlocks))
	}
	return append(appendTruth(dst, `,"prefill_busy":`, d.PrefillBusy), '}')
}

// wholeBlocks rounds decode blocks, of which some may count in part, as Dynamo does.
func wholeBlocks(n float64) int64 { return int64(math.Round(n)) }

func appendCount(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(dst, name...), n, 10)
}

func appendTruth(dst []byte, name string, v *bool) []byte {
	if v == nil {
		return dst
	}
	return strconv.AppendBool(append(dst, name...), *v)
}

// appendText writes a JSON string.
func appendText(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return appendOddText(dst, s)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

func appendOddText(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // there is no text that it cannot write
		return append(dst, `""`...)
	}
	return append(dst, b...)
}
