package core

import (
	"context"
	"time"

	"github.com/routerd/routerd/core/affinity"
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
	if c := a.req.SessionContext; c != nil {
		t.SetField(abi.FieldInputTrigger, float64(c.Trigger))
		setHeaders(t, c.AgentHeaders)
	}
	setHeaders(t, a.req.Headers)
	if a.req.Kind == Advisory {
		t.Flags |= uint32(abi.FlagAdvisory)
	}
	if a.req.Pin != nil {
		t.Flags |= uint32(abi.FlagPinned)
	}
	if a.boundRow >= 0 && a.req.Target == nil {
		t.Flags |= uint32(abi.FlagSessionBound)
	}
	if a.conflicts > 0 && !a.waiting.since.IsZero() {
		t.Flags |= uint32(abi.FlagDequeuedAgain)
	}
	t.SetPrefix(p.blockSize, a.prefixes)
	copy(t.Rows, a.workers)
	now := time.Now()
	t.At = now
	a.fillCache(p)
	a.fillLoad(p.blockSize)
	a.fillReports(now)
	a.fillSession(p)
	a.fillWorkers(now)
	a.fillFields(ctx, p, now)
}

// setHeaders lets the policy see the ids of headers' values.
func setHeaders(t *policy.Table, headers map[string]string) {
	for name, value := range headers {
		if value != "" {
			t.SetHeader(name, abi.ID(value))
		}
	}
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

// fillLoad writes our projection. Where the request does not count prompt tokens as
// load there are none, its own included.
func (a *attempt) fillLoad(blockSize int) {
	t := &a.table
	tracked := holds(a.req.TrackPrefill)
	prefill := func(c abi.Column, own int) {
		col := t.Fill(c)
		if !tracked {
			clear(col)
			return
		}
		for i := range col {
			col[i] = float64(a.loads[i].PrefillTokens + int64(own))
		}
	}
	prefill(abi.ColLoadPrefillTokens, 0)
	prefill(abi.ColLoadPotentialPrefillTokens, a.tokens)
	col := t.Fill(abi.ColLoadDecodeBlocks)
	for i := range col {
		col[i] = a.loads[i].DecodeBlocks
	}
	col = t.Fill(abi.ColLoadActiveRequests)
	for i := range col {
		col[i] = float64(a.loads[i].ActiveRequests)
	}
	col = t.Fill(abi.ColLoadPotentialDecodeBlocks)
	for i := range col {
		col[i] = a.decodeBlocks(i, blockSize)
	}
}

// fillReports writes what the engines said. Their occupancy stands in for our
// projection of it, which is known always.
func (a *attempt) fillReports(now time.Time) {
	known := func(column abi.Column, value func(load.Report) float64) {
		cells := a.table.Cells(column)
		if cells == nil {
			return
		}
		col := cells.Fill()
		for i := range col {
			report, ok := a.report(i)
			v := -1.0
			if ok {
				v = value(report)
			}
			if col[i] = v; v < 0 {
				col[i] = 0
				cells.Miss(i)
			}
		}
	}
	known(abi.ColEngineQueued, func(r load.Report) float64 { return float64(r.Queued) })
	known(abi.ColEngineRunning, func(r load.Report) float64 { return float64(r.Running) })
	known(abi.ColEngineReportAgeMs, func(r load.Report) float64 { return max(millis(now.Sub(r.At)), 0) })
	a.fillOccupancy(now)
}

// fillOccupancy writes the KV blocks in use and their part of all.
func (a *attempt) fillOccupancy(now time.Time) {
	used, usage := a.table.Cells(abi.ColKVUsedBlocks), a.table.Cells(abi.ColKVUsage)
	if used == nil && usage == nil {
		return
	}
	blocks, part := used.Fill(), usage.Fill()
	for i, row := range a.rows {
		total := int64(a.view.rows[row].member.record.TotalKVBlocks)
		in := a.loads[i].DecodeBlocks
		report, known := a.report(i)
		if known {
			in = report.UsedBlocks(in, total, now, reportMaxAge)
		}
		if used != nil {
			blocks[i] = in
		}
		if usage == nil {
			continue
		}
		of, ok := 0.0, false
		if known && report.Fresh(now, reportMaxAge) {
			of, ok = report.Usage(total)
		}
		if !ok && total > 0 {
			of, ok = min(in/float64(total), 1), true
		}
		if part[i] = of; !ok {
			usage.Miss(i)
		}
	}
}

// fillSession writes which worker the session is bound to. Where nobody keeps
// bindings, or the table was full, that is not known.
func (a *attempt) fillSession(p *Partition) {
	a.table.SetField(abi.FieldSessionTurn, float64(a.hold.Turn()))
	cells := a.table.Cells(abi.ColSessionBound)
	if cells == nil || a.unkept(p) {
		return
	}
	col := cells.Fill()
	clear(col)
	if a.boundRow >= 0 {
		col[a.boundRow] = 1
	}
}

// unkept tells whether the request has a session that no table keeps.
func (a *attempt) unkept(p *Partition) bool {
	switch {
	case a.req.session() == "":
		return false
	case !p.sessions.Enabled() || a.req.boundSession() == "":
		return true
	}
	return a.req.Kind == Book && a.req.Pin == nil && a.req.Target == nil && !a.unsteered && a.hold.State() == affinity.Unpinned
}

func (a *attempt) fillWorkers(now time.Time) {
	a.each(abi.ColWorkerID, func(r *viewRow) (float64, bool) { return r.column, true })
	a.each(abi.ColWorkerDPRank, func(r *viewRow) (float64, bool) { return float64(r.worker.Rank), true })
	a.each(abi.ColWorkerMaxBatchedTokens, func(r *viewRow) (float64, bool) { return given(r.member.record.MaxBatchedTokens) })
	a.each(abi.ColKVTotalBlocks, func(r *viewRow) (float64, bool) { return given(r.member.record.TotalKVBlocks) })
	a.each(abi.ColWorkerAgeMs, func(r *viewRow) (float64, bool) {
		return float64(now.Sub(r.member.readySince).Milliseconds()), true
	})
	a.each(abi.ColTaintPreference, func(r *viewRow) (float64, bool) { return a.req.Constraints.preference(&r.member.record), true })
	a.each(abi.ColWorkerOverloaded, func(r *viewRow) (float64, bool) { return flag(a.overloaded[r.slot]), true })
	a.fillAdapters(now)
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
	t.SetField(abi.FieldSessionFinal, flag(req.sessionFinal()))
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
		{abi.FieldSession, req.session()},
		{abi.FieldParentSession, req.parentSession()},
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
