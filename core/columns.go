package core

import (
	"context"
	"time"

	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// fill builds the candidate table from the snapshot: the columns of the set
// that have a source here, and the request fields. A cell whose signal is not
// known, or whose column has no source, stays missing.
func (a *attempt) fill(ctx context.Context, p *Partition, set policy.ColumnSet) {
	t := &a.table
	t.Reset(len(a.rows), set)
	t.Seed, t.Sequence, t.Overrides, t.Partition = a.seed, a.sequence, a.req.Overrides, p.key
	for name, value := range a.req.Headers {
		if value != "" {
			t.SetHeader(name, abi.ID(value))
		}
	}
	if a.req.Kind == Advisory {
		t.Flags |= uint32(abi.FlagAdvisory)
	}
	if a.req.Pin != nil {
		t.Flags |= uint32(abi.FlagPinned)
	}
	copy(t.Rows, a.workers)
	now := time.Now()
	a.fillCache(p)
	a.fillLoad(p.blockSize)
	a.fillWorkers(now)
	a.fillFields(ctx, p, now)
}

// fillCache writes what the index says. Of a prompt that is known by its length
// alone nobody can tell what is cached, unless it fills no block.
func (a *attempt) fillCache(p *Partition) {
	t := &a.table
	if len(a.blocks) > 0 || a.blockCount == 0 {
		col := t.Fill(abi.ColKVOverlapDevice)
		for i := range col {
			col[i] = float64(a.overlaps[i].Device)
		}
		col = t.Fill(abi.ColKVOverlapHost)
		for i := range col {
			col[i] = float64(a.overlaps[i].Host)
		}
		col = t.Fill(abi.ColKVOverlapDisk)
		for i := range col {
			col[i] = float64(a.overlaps[i].Disk)
		}
		col = t.Fill(abi.ColKVOverlapShared)
		for i := range col {
			col[i] = float64(a.overlaps[i].Shared)
		}
	}
	col := t.Fill(abi.ColKVIndexTrusted)
	for i := range col {
		col[i] = flag(a.exact && p.index.Trusted(a.workers[i]))
	}
}

func (a *attempt) fillLoad(blockSize int) {
	t := &a.table
	col := t.Fill(abi.ColLoadPrefillTokens)
	for i := range col {
		col[i] = float64(a.loads[i].PrefillTokens)
	}
	col = t.Fill(abi.ColLoadDecodeBlocks)
	for i := range col {
		col[i] = a.loads[i].DecodeBlocks
	}
	col = t.Fill(abi.ColLoadActiveRequests)
	for i := range col {
		col[i] = float64(a.loads[i].ActiveRequests)
	}
	col = t.Fill(abi.ColLoadPotentialPrefillTokens)
	for i := range col {
		col[i] = float64(a.loads[i].PrefillTokens + int64(a.tokens))
	}
	col = t.Fill(abi.ColLoadPotentialDecodeBlocks)
	blocks := float64(load.PromptBlocks(int64(a.tokens), blockSize))
	for i := range col {
		held := a.active[a.view.rows[a.rows[i]].slot]
		col[i] = a.loads[i].DecodeBlocks + blocks - held
	}
}

func (a *attempt) fillWorkers(now time.Time) {
	a.each(abi.ColWorkerID, func(r *viewRow) (float64, bool) { return r.column, true })
	a.each(abi.ColWorkerDPRank, func(r *viewRow) (float64, bool) { return float64(r.worker.Rank), true })
	a.each(abi.ColWorkerMaxBatchedTokens, func(r *viewRow) (float64, bool) { return given(r.member.record.MaxBatchedTokens) })
	a.each(abi.ColKVTotalBlocks, func(r *viewRow) (float64, bool) { return given(r.member.record.TotalKVBlocks) })
	a.each(abi.ColWorkerAgeMs, func(r *viewRow) (float64, bool) {
		return float64(now.Sub(r.member.readySince).Milliseconds()), true
	})
	if a.req.Adapter != "" { // only workers that list it are eligible
		a.each(abi.ColLoraLoaded, func(*viewRow) (float64, bool) { return 1, true })
	}
	set := a.table.Set()
	for _, name := range set.Labels() {
		a.fillLabel(name)
	}
}

// given is a number of a worker's record, where 0 stands for none.
func given(v int) (value float64, known bool) { return float64(v), v != 0 }

// each fills a column, where the table has it, from the candidates' rows of the
// view; a row whose value is not known is missing.
func (a *attempt) each(c abi.Column, value func(*viewRow) (v float64, known bool)) {
	cells := a.table.Cells(c)
	if cells == nil {
		return
	}
	col := cells.Fill()
	for i, row := range a.rows {
		v, known := value(&a.view.rows[row])
		col[i] = v
		if !known {
			cells.Miss(i)
		}
	}
}

func (a *attempt) fillLabel(name string) {
	whole, cells := a.view.label(name), a.table.LabelCells(name)
	col := cells.Fill()
	for i, row := range a.rows {
		col[i] = whole.values[row]
	}
	if whole.missing == nil {
		return
	}
	for i, row := range a.rows {
		if whole.missing[row] {
			cells.Miss(i)
		}
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
