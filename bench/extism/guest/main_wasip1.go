// Command guest is the default policy as its author would write it for Extism:
// JSON in, JSON out, the formula in plain Go.
package main

import (
	"runtime"

	"github.com/extism/go-pdk"

	"github.com/routerd/routerd/bench/extism/exchange"
)

func main() {} // never called: the module is a library

//go:wasmexport score
func score() int32 {
	var in exchange.Request
	if err := pdk.InputJSON(&in); err != nil {
		pdk.SetError(err)
		return 1
	}
	if err := pdk.OutputJSON(exchange.Response{Scores: scores(&in)}); err != nil {
		pdk.SetError(err)
		return 1
	}
	// Between calls nothing else runs: without this the collector never gets on,
	// and the guest dies of its garbage.
	runtime.Gosched()
	return 0
}

// scores is the formula in the order of the native twin, each product that is
// added rounded by itself.
func scores(in *exchange.Request) []float64 {
	if len(in.Candidates) == 0 {
		return nil
	}
	c, blocks, least := in.Config, larger(in.Blocks, 1), in.Candidates[0].Prefill
	for i := range in.Candidates {
		if in.Candidates[i].Prefill < least {
			least = in.Candidates[i].Prefill
		}
	}
	out := make([]float64, len(in.Candidates))
	for i := range in.Candidates {
		r := &in.Candidates[i]
		excess := larger(r.Prefill-least, 0) / in.BlockSize
		decay := 1 / (1 + float64(c.CreditDecay*(excess/blocks)))
		credit := float64(float64(c.OverlapCredit*decay)*r.Device) + float64(c.HostWeight*r.Host)
		credit += float64(c.DiskWeight * r.Disk)
		credit += float64(c.SharedWeight * r.Shared)
		pre := larger(r.PotentialPrefill/in.BlockSize-credit, 0)
		cost := float64(c.PrefillLoadScale*pre) + r.PotentialDecode
		cost += float64(c.ActiveRequestWeight * r.Active)
		out[i] = -float64(cost * r.Preference)
	}
	return out
}

func larger(a, b float64) float64 {
	if a > b {
		return a
	}
	return b
}
