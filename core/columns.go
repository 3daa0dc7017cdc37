package core

import (
	"context"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// fill builds the candidate table from the snapshot: the columns of the set
// that have a source here, every other one at its registry default, and the
// request fields.
func (a *attempt) fill(ctx context.Context, p *Partition, set policy.ColumnSet) {
	t := &a.table
	t.Reset(len(a.rows), set)
	t.Seed, t.Sequence, t.Overrides = a.seed, a.sequence, a.req.Overrides
	if a.req.Kind == Advisory {
		t.Flags |= uint32(abi.FlagAdvisory)
	}
	if a.req.Pin != nil {
		t.Flags |= uint32(abi.FlagPinned)
	}
	copy(t.Rows, a.workers)
	now := time.Now()
	a.fillCache(p)
	a.fillLoad()
	a.fillWorkers(now)
	a.fillFields(ctx, p, now)
}

func (a *attempt) fillCache(p *Partition) {
	t := &a.table
	if col := t.Column(abi.ColKVOverlapDevice); col != nil {
		for i := range col {
			col[i] = float64(a.overlaps[i].Device)
		}
	}
	if col := t.Column(abi.ColKVOverlapHost); col != nil {
		for i := range col {
			col[i] = float64(a.overlaps[i].Host)
		}
	}
	if col := t.Column(abi.ColKVOverlapDisk); col != nil {
		for i := range col {
			col[i] = float64(a.overlaps[i].Disk)
		}
	}
	if col := t.Column(abi.ColKVOverlapShared); col != nil {
		for i := range col {
			col[i] = float64(a.overlaps[i].Shared)
		}
	}
	if col := t.Column(abi.ColKVIndexTrusted); col != nil && a.exact {
		for i := range col {
			if p.index.Trusted(a.workers[i]) {
				col[i] = 1
			}
		}
	}
}

func (a *attempt) fillLoad() {
	t := &a.table
	if col := t.Column(abi.ColLoadPrefillTokens); col != nil {
		for i := range col {
			col[i] = float64(a.loads[i].PrefillTokens)
		}
	}
	if col := t.Column(abi.ColLoadDecodeBlocks); col != nil {
		for i := range col {
			col[i] = float64(a.loads[i].DecodeBlocks)
		}
	}
	if col := t.Column(abi.ColLoadActiveRequests); col != nil {
		for i := range col {
			col[i] = float64(a.loads[i].ActiveRequests)
		}
	}
	if col := t.Column(abi.ColLoadPotentialPrefillTokens); col != nil {
		for i := range col {
			col[i] = float64(a.loads[i].PrefillTokens + int64(a.tokens))
		}
	}
	if col := t.Column(abi.ColLoadPotentialDecodeBlocks); col != nil {
		for i, row := range a.rows {
			held := a.active[a.view.rows[row].slot]
			col[i] = float64(a.loads[i].DecodeBlocks + int64(a.blockCount) - int64(held))
		}
	}
}

func (a *attempt) fillWorkers(now time.Time) {
	a.each(abi.ColWorkerID, func(r *viewRow) float64 { return r.column })
	a.each(abi.ColWorkerDPRank, func(r *viewRow) float64 { return float64(r.worker.Rank) })
	a.each(abi.ColWorkerMaxBatchedTokens, func(r *viewRow) float64 { return float64(r.member.record.MaxBatchedTokens) })
	a.each(abi.ColKVTotalBlocks, func(r *viewRow) float64 { return float64(r.member.record.TotalKVBlocks) })
	a.each(abi.ColWorkerAgeMs, func(r *viewRow) float64 { return float64(now.Sub(r.member.readySince).Milliseconds()) })
	if a.req.Adapter != "" { // only workers that list it are eligible
		a.each(abi.ColLoraLoaded, func(*viewRow) float64 { return 1 })
	}
	set := a.table.Set()
	for _, name := range set.Labels() {
		whole, col := a.view.label(name), a.table.Label(name)
		for i, row := range a.rows {
			col[i] = whole[row]
		}
	}
}

// each fills a column, where the table has it, from the candidates' rows of the
// view.
func (a *attempt) each(c abi.Column, value func(*viewRow) float64) {
	col := a.table.Column(c)
	if col == nil {
		return
	}
	for i, row := range a.rows {
		col[i] = value(&a.view.rows[row])
	}
}

func (a *attempt) fillFields(ctx context.Context, p *Partition, now time.Time) {
	t, req := &a.table, a.req
	arrival := req.Arrival
	if arrival.IsZero() {
		arrival = a.started
	}
	t.SetField(abi.FieldISLTokens, float64(a.tokens))
	t.SetField(abi.FieldISLBlocks, float64(a.blockCount))
	t.SetField(abi.FieldBlockSize, float64(p.blockSize))
	t.SetField(abi.FieldOSLEstimate, float64(req.ExpectedOutput))
	t.SetField(abi.FieldMaxTokens, float64(req.MaxTokens))
	t.SetField(abi.FieldPriority, float64(req.Priority))
	t.SetField(abi.FieldTemperature, req.Temperature)
	if deadline, ok := ctx.Deadline(); ok {
		t.SetField(abi.FieldDeadlineMs, max(millis(deadline.Sub(now)), 0))
	}
	t.SetField(abi.FieldQueueAgeMs, max(millis(now.Sub(arrival)), 0))
	t.SetField(abi.FieldHasLora, flag(req.Adapter != ""))
	t.SetField(abi.FieldNTotalWorkers, float64(len(a.view.rows)))
	t.SetField(abi.FieldStreaming, flag(req.Streaming))
	t.SetField(abi.FieldSessionFinal, flag(req.SessionFinal))
	t.SetField(abi.FieldNowMs, float64(now.UnixMilli()))
	t.SetField(abi.FieldDecisionID, float64(a.number))
	low, high := a.overlaps[0].Device, a.overlaps[0].Device
	for _, o := range a.overlaps[1:] {
		low, high = min(low, o.Device), max(high, o.Device)
	}
	t.SetField(abi.FieldMaxOverlapBlocks, float64(high))
	t.SetField(abi.FieldMinOverlapBlocks, float64(low))
	for _, f := range []struct {
		field abi.Field
		text  string
	}{
		{abi.FieldTenant, req.Tenant},
		{abi.FieldModel, p.key.Model},
		{abi.FieldSession, req.Session},
		{abi.FieldParentSession, req.ParentSession},
		{abi.FieldAdapter, req.Adapter},
	} {
		if f.text != "" {
			t.SetField(f.field, abi.ID(f.text))
		}
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
