package policy

import (
	"context"
	"encoding/json"
	"math"

	"github.com/routerd/routerd/plugins/abi"
)

// The settings of weighted-sum.
const (
	prefixWeight = iota
	queueWeight
	usageWeight
	lengthWeight
	lengthScale
)

var weightedSumSettings = settings{
	{name: "prefix_weight", unless: 2, high: MaxWeight},
	{name: "queue_weight", unless: 1, high: MaxWeight},
	{name: "kv_cache_utilization_weight", unless: 1, high: MaxWeight},
	{name: "prefix_match_length_weight", unless: 0, high: 1},
	{name: "prefix_match_length_scale_tokens", unless: 8192, low: 1, high: math.MaxFloat64},
}

// neutralUsage is the score of a rank whose KV occupancy nobody knows.
const neutralUsage = 0.5

// weightedSum adds three scores from 0 to 1, each with its weight: the part of
// the prompt in device memory, how short the rank's queue is among those of all
// candidates, and how much of its KV cache is free.
type weightedSum struct{ configured }

func newWeightedSum(config json.RawMessage) (*weightedSum, error) {
	c, err := configure(weightedSumSettings, config)
	return &weightedSum{c}, err
}

func (*weightedSum) Columns() ColumnSet {
	var set ColumnSet
	set.AddStd(
		abi.ColKVOverlapDevice, abi.ColEngineQueued, abi.ColLoadActiveRequests,
		abi.ColKVUsage, abi.ColLoadDecodeBlocks, abi.ColKVTotalBlocks,
	)
	return set
}

func (s *weightedSum) Score(_ context.Context, t *Table, scores []float64, _ *StageReport) (Verdict, error) {
	var (
		n      = s.asked(t)
		device = t.Column(abi.ColKVOverlapDevice)[:len(scores)]
		queue  = queuesOf(t)[:len(scores)]
		usage  = usageOf(t)
		size   = t.Field(abi.FieldBlockSize)
		blocks = larger(t.Field(abi.FieldISLBlocks), 1)
	)
	least, most := rangeKept(queue, t.mask)
	for i := range scores {
		part := smaller(device[i]/blocks, 1)
		if n[lengthWeight] > 0 {
			length := smaller(float64(device[i]*size)/n[lengthScale], 1)
			part = float64(n[lengthWeight]*float64(length*length)) + float64((1-n[lengthWeight])*part)
		}
		short := 1.0
		if most > least {
			short = (most - queue[i]) / (most - least)
		}
		score := float64(n[prefixWeight]*part) + float64(n[queueWeight]*short)
		scores[i] = score + float64(n[usageWeight]*usage.free(i))
	}
	return Answered, nil
}

// queuesOf is what the engines report to be waiting where every candidate's does,
// else the requests that are booked: numbers of two kinds are not compared.
func queuesOf(t *Table) []float64 {
	queued := t.Cells(abi.ColEngineQueued)
	for row := range t.Rows {
		if t.Kept(row) && queued.Missing(row) {
			return t.Column(abi.ColLoadActiveRequests)
		}
	}
	return queued.Values()
}

// occupancy tells how full the candidates' KV caches are.
type occupancy struct{ usage, held, total *Cells }

func usageOf(t *Table) occupancy {
	return occupancy{t.Cells(abi.ColKVUsage), t.Cells(abi.ColLoadDecodeBlocks), t.Cells(abi.ColKVTotalBlocks)}
}

// free is the free part of the row's cache, 0 to 1: as the engine reports, else
// by what the running requests hold.
func (o *occupancy) free(row int) float64 {
	if !o.usage.Missing(row) {
		return 1 - smaller(o.usage.values[row], 1)
	}
	if total := o.total.values[row]; total > 0 {
		return 1 - smaller(o.held.values[row]/total, 1)
	}
	return neutralUsage
}

// rangeKept is the smallest and the largest value of the rows that mask keeps;
// nil keeps all.
func rangeKept(values []float64, mask []byte) (least, most float64) {
	found := false
	for row, v := range values {
		if len(mask) > 0 && mask[row] != 1 {
			continue
		}
		if !found || v < least {
			least = v
		}
		if !found || v > most {
			most = v
		}
		found = true
	}
	return least, most
}

// smaller is a < b ? a : b.
func smaller(a, b float64) float64 {
	if a < b {
		return a
	}
	return b
}
