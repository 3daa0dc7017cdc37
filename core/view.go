package core

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/routerd/routerd/core/load"
	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/plugins/abi"
)

// member is an immutable worker record with its standing.
type member struct {
	record     fleet.Record
	lifecycle  Lifecycle
	reasons    []string
	generation uint64    // of the record: changes when it is deleted and made anew
	readySince time.Time // zero while not ready
}

// with returns the member with another record and standing, of the same
// generation.
func (m *member) with(rec fleet.Record, l Lifecycle, reasons []string, now time.Time) *member {
	out := &member{record: rec, lifecycle: l, reasons: slices.Clone(reasons), generation: m.generation, readySince: m.readySince}
	switch {
	case l != Ready:
		out.readySince = time.Time{}
	case out.readySince.IsZero():
		out.readySince = now
	}
	return out
}

// eligibleAs tells whether the change from m to o leaves every answer about
// eligibility as it was.
func (m *member) eligibleAs(o *member) bool {
	return m.lifecycle == o.lifecycle && slices.Equal(m.record.Adapters, o.record.Adapters)
}

// view is an immutable picture of a partition's workers. Rows ascend by
// (worker, rank) and hold every rank, eligible or not.
type view struct {
	rows    []viewRow
	members []*member // ascending by id
	byID    map[fleet.WorkerID]*member
	byName  map[string]*member
	ready   bool // every row is
	serving int  // members that are ready

	labels sync.Map // label column → *labelColumn, made when first asked for
}

type viewRow struct {
	worker fleet.Worker
	member *member
	index  int32 // of the member in the view
	slot   load.Slot
	column float64 // worker.id as a column
}

// newView builds a view; slotOf names the slot of each rank.
func newView(members []*member, slotOf map[fleet.Worker]load.Slot) *view {
	v := &view{
		members: members, ready: true,
		byID: make(map[fleet.WorkerID]*member, len(members)), byName: make(map[string]*member, len(members)),
	}
	for i, m := range members {
		v.byID[m.record.ID], v.byName[m.record.Name] = m, m
		v.ready = v.ready && m.lifecycle == Ready
		if m.lifecycle == Ready {
			v.serving++
		}
		column := workerColumn(m.record.ID)
		for _, rank := range m.record.Ranks() {
			w := fleet.Worker{ID: m.record.ID, Rank: rank}
			v.rows = append(v.rows, viewRow{w, m, int32(i), slotOf[w], column})
		}
	}
	return v
}

// index is the place of a member of the view.
func (v *view) index(m *member) int {
	i, _ := slices.BinarySearchFunc(v.members, m, func(a, b *member) int { return cmp.Compare(a.record.ID, b.record.ID) })
	return i
}

// labelColumn is a label column over all rows of a view.
type labelColumn struct {
	values  []float64
	missing []bool // by row; nil when every row has its value
}

// label returns a label column over all rows of the view.
func (v *view) label(name string) *labelColumn {
	made, _ := v.labels.Load(name)
	if col, ok := made.(*labelColumn); ok {
		return col
	}
	col := &labelColumn{values: make([]float64, len(v.rows))}
	for i, r := range v.rows {
		value, ok := labelValue(r.member.record.Labels, name)
		if ok {
			col.values[i] = value
			continue
		}
		if col.missing == nil {
			col.missing = make([]bool, len(v.rows))
		}
		col.missing[i] = true
	}
	v.labels.Store(name, col)
	return col
}

// labelValue reads one worker's value of a label column; ok is false when it has
// no such label or, for label_num, one that is no finite number.
func labelValue(labels map[string]string, column string) (value float64, ok bool) {
	key, isNumber := strings.CutPrefix(column, abi.LabelNumPrefix)
	if !isNumber {
		key = strings.TrimPrefix(column, abi.LabelPrefix)
	}
	text, ok := labels[key]
	if !ok {
		return 0, false
	}
	if !isNumber {
		id := abi.ID(text)
		return id, id != 0 // 0 is no id
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, false
	}
	return f, true
}

// find reads a worker's name or decimal id.
func (v *view) find(s string) *member {
	if m := v.byName[s]; m != nil {
		return m
	}
	id, err := fleet.ParseWorkerID(s)
	if err != nil {
		return nil
	}
	return v.byID[id]
}

// named is the worker that a pin or an affinity target names; nil when it is not
// known.
func (v *view) named(p *Pin) *member {
	if p.ID != nil {
		return v.byID[*p.ID]
	}
	return v.find(p.Name)
}

// workerColumn is a worker id as a float64: itself where that is exact and not
// 0, else the id of its decimal text.
func workerColumn(id fleet.WorkerID) float64 {
	if id >= 1 && id < 1<<53 {
		return float64(id)
	}
	return abi.ID(id.String())
}
