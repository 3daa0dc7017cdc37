package core

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/kvcache"
)

// report records the decision and tells telemetry how the selection ended.
func (p *Partition) report(a *attempt, sel *Selection, err error) {
	elapsed := time.Since(a.started)
	e := DecisionEvent{
		Partition: p.key, Kind: a.req.Kind, Surface: a.req.Surface, Policy: a.asked.policy, Revision: a.asked.revision, Canary: a.asked.canary,
		Candidates: len(a.rows), Conflicts: a.conflicts, Turn: a.tookTurn, Fuel: a.asked.fuel, Elapsed: elapsed, Waited: a.waiting.waited, Deciding: a.asked.deciding,
	}
	if a.asked.policy != "" {
		if f := a.decision.Fault; f != nil {
			e.FaultReason, e.FaultCode = f.Reason, f.Code
			p.logFault(a, f)
		}
	}
	if e.Waited > 0 {
		e.Class = a.waiting.place.Class
	}
	if err == nil {
		e.By = sel.By
		if e.By != policy.ByPin {
			a.judge(&e, p.blockSize)
		}
		e.Recorded = p.core.decisions.add(a, elapsed, nil)
	} else {
		e.Code, e.Class = CodeCancelled, p.className(a)
		if ce, ok := errors.AsType[*Error](err); ok {
			e.Code = ce.Code
			if ce.DecisionID != "" {
				f := ce.fault()
				e.Recorded = p.core.decisions.add(a, elapsed, f)
				p.logFailure(a, f)
			}
		}
	}
	p.core.host.Telemetry.Decided(&e)
}

// className names the class in which a request waits or would have.
func (p *Partition) className(a *attempt) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.class(a).Name
}

// judge says how good the choice was beside the others that there were.
func (a *attempt) judge(e *DecisionEvent, blockSize int) {
	if len(a.blocks) > 0 {
		for row := range a.rows {
			if a.overlaps[row] != (kvcache.Overlap{}) { // mostly nothing is held
				e.CachedBest = max(e.CachedBest, a.cached(row, blockSize))
			}
		}
		e.CachedSelected = a.cached(a.decision.Row, blockSize)
	}
	var most, sum int64
	for i := range a.loads {
		most, sum = max(most, a.loads[i].ActiveRequests), sum+a.loads[i].ActiveRequests
	}
	e.LoadSpread = float64(most) - float64(sum)/float64(len(a.loads))
}

// logFault tells the operator once that a revision has tripped, and everything
// else to whoever debugs. The stage's own words stay in the decision record.
func (p *Partition) logFault(a *attempt, f *policy.Fault) {
	log := p.core.log.With("partition", p.key.String(), "policy", a.asked.policy, "revision", a.asked.revision, "plugin", f.Stage, "reason", f.Reason)
	if a.decision.Tripped {
		log.Warn("policy tripped: its fallback decides from now on")
		return
	}
	log.Debug("policy faulted")
}

// logFailure tells the operator of a request that its policy has ended, at a low
// rate over all partitions: the metrics count them all.
func (p *Partition) logFailure(a *attempt, f *policy.Fault) {
	level := slog.LevelDebug
	if p.core.failures.take(time.Now()) {
		level = slog.LevelWarn
	}
	p.core.log.Log(context.Background(), level, "policy ended a request without a pick", "partition", p.key.String(), "policy", a.asked.policy,
		"revision", a.asked.revision, "plugin", f.Stage, "reason", f.Reason, "decision", a.sel.DecisionID)
}

// decisionID is unique within the process and tells the request's id, if it has
// one.
func (a *attempt) decisionID() string {
	n := strconv.FormatUint(a.number, 36)
	if a.req.RequestID == "" {
		return "d." + n
	}
	return a.req.RequestID + "." + n
}
