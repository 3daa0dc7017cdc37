package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// stage is a pipeline stage that runs a guest module, whatever its kind. Stages
// with the same module and configuration share a pool. Safe for concurrent use.
type stage struct {
	use     string
	rt      *Runtime
	kind    abi.Kind
	number  int // of the kind
	key     poolKey
	pool    *pool
	metrics *stageMetrics
	audits  auditTurn
	failed  atomic.Pointer[func(*policy.Fault)]

	mu         sync.Mutex                   // guards partitions
	partitions map[fleet.PartitionKey]*pool // of a module that keeps state
}

// The kinds of stages.
type (
	filterStage struct{ *stage }
	scorerStage struct{ *stage }
	pickerStage struct{ *stage }
	wholeStage  struct{ *stage }
)

var (
	_ policy.Filter = filterStage{}
	_ policy.Scorer = scorerStage{}
	_ policy.Picker = pickerStage{}
	_ policy.Whole  = wholeStage{}
)

// Audited is a stage whose module is run again now and then, to see that equal
// frames give equal bits.
type Audited interface {
	// SetAuditFailed sets what is called, on another goroutine than any
	// request's, when they do not. It must not block. A module for which this is
	// called once is not to be trusted again.
	SetAuditFailed(f func(*policy.Fault))
}

// as is the stage in the form that its kind is called by.
func (s *stage) as() policy.Stage {
	switch s.kind {
	case abi.KindFilter:
		return filterStage{s}
	case abi.KindPicker:
		return pickerStage{s}
	case abi.KindPolicy:
		return wholeStage{s}
	case abi.KindScorer, abi.KindLoraScorer:
	}
	return scorerStage{s}
}

// Columns is what the manifest declares and this host knows.
func (s *stage) Columns() policy.ColumnSet { return s.pool.module.columns }

// CheckOverrides knows the config.<pointer> request fields of the manifest.
func (s *stage) CheckOverrides(overrides map[string]json.RawMessage) (known []string, err error) {
	m := s.pool.module
	return contained("check overrides", func() ([]string, error) { return m.checkOverrides(s.pool.config, overrides) })
}

// SetAuditFailed is Audited's.
func (s *stage) SetAuditFailed(f func(*policy.Fault)) { s.failed.Store(&f) }

// Close gives the stage's share of its pools up.
func (s *stage) Close() error {
	s.mu.Lock()
	partitions := s.partitions
	s.partitions = nil
	s.mu.Unlock()
	s.rt.keeping.Delete(s)
	s.metrics.close()
	var errs []error
	for key := range partitions {
		errs = append(errs, s.rt.pools.release(s.keyOf(key)))
	}
	return errors.Join(append(errs, s.rt.pools.release(s.key))...)
}

// Filter calls the guest once for all rows.
func (s filterStage) Filter(ctx context.Context, t *policy.Table, keep []byte, r *policy.StageReport) (policy.Verdict, error) {
	return s.decide(ctx, t, keep, r, &result{keep: keep})
}

// Score calls the guest once for all rows.
func (s scorerStage) Score(ctx context.Context, t *policy.Table, scores []float64, r *policy.StageReport) (policy.Verdict, error) {
	return s.decide(ctx, t, t.Mask(), r, &result{scores: scores})
}

// Pick calls the guest once; it sees the totals as the column upstream.score
// where it declares that.
func (s pickerStage) Pick(ctx context.Context, t *policy.Table, _ []float64, r *policy.StageReport) (policy.Choice, policy.Verdict, error) {
	out := result{}
	v, err := s.decide(ctx, t, t.Mask(), r, &out)
	return out.choice, v, err
}

// Decide calls the guest once for all rows.
func (s wholeStage) Decide(ctx context.Context, t *policy.Table, scores []float64, keep []byte, r *policy.StageReport) (policy.Choice, policy.Verdict, error) {
	out := result{scores: scores, keep: keep}
	v, err := s.decide(ctx, t, keep, r, &out)
	return out.choice, v, err
}

// decide makes one live call. out is good where the verdict is Answered.
func (s *stage) decide(ctx context.Context, t *policy.Table, mask []byte, r *policy.StageReport, out *result) (policy.Verdict, error) {
	p, err := s.poolOf(t.Partition)
	if err != nil {
		return 0, s.poolFault(ctx, err)
	}
	if t.Len() > p.shape.Load().capacity() && !p.widenNow(ctx, t.Len()) {
		return 0, s.overCapacity(p, t.Len())
	}
	in, err := p.get(ctx)
	if err != nil {
		return 0, s.poolFault(ctx, err)
	}
	if t.Len() > in.shape.capacity() { // taken while the pool's frames were exchanged
		p.put(in)
		return 0, s.overCapacity(p, t.Len())
	}
	s.metrics.calls.Inc()
	limits := s.rt.limits.Load()
	c := call{
		kind: s.kind, number: s.number, table: t, mask: mask, quiet: t.Quiet,
		budget: s.pool.module.budget(limits.FuelCap, t.Len()), limit: limits.CallDeadline,
	}
	record := s.auditOf(&c)
	code, used, fault := in.run(&c)
	in.calls++
	r.Fuel = used
	s.metrics.fuel.Add(float64(used))
	if fault == nil && code == abi.GuestOK {
		if fault = in.take(&c, out); fault != nil {
			fault.Fuel = used
		}
		r.Cleaned, r.Finite = out.cleaned, true
	}
	in.tell(r)
	if fault != nil {
		fault = in.excused(fault)
		s.dropAudit(record)
		p.retire(in)
		return 0, s.fault(fault)
	}
	s.audit(record, in, code, out)
	p.put(in)
	if code == abi.GuestAbstain {
		return policy.Abstained, nil
	}
	return policy.Answered, nil
}

func (s *stage) overCapacity(p *pool, rows int) error {
	s.rt.sawRows(rows)
	cannot := p.widenTo(rows)
	return s.fault(tooMany(rows, p.shape.Load().capacity(), p.module.manifest.Limits.MaxRows, cannot))
}

func (s *stage) poolFault(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), policy.ErrOutOfTime) {
		s.metrics.faults[reasonPoolWait].Inc()
		return fmt.Errorf("wait for an instance of %s: %w", s.use, err)
	}
	reason := reasonPoolWait
	if errors.Is(err, errMemory) {
		reason = reasonNoMemory
	}
	return s.fault(&policy.Fault{Code: string(abi.EPool), Reason: reason, Detail: err.Error()})
}

func (s *stage) fault(f *policy.Fault) error {
	f.Stage = s.use
	f.Detail = f.Detail[:min(len(f.Detail), 512)]
	s.metrics.faults[f.Reason].Inc()
	return f
}
