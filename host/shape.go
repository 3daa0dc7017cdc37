package host

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// firstRows is how many rows a frame is bound for until a call needs more, or
// max_rows where that is less.
const firstRows = 1024

// shape is a frame of one capacity: where everything lies in it and how tables
// are written into it. Immutable; instances of one pool share it until it grows.
type shape struct {
	layout *abi.Layout
	filler *filler
}

func newShape(m *module, c *configuration, capacity int) (*shape, error) {
	present := make([]bool, len(m.manifest.Columns))
	for i, col := range m.manifest.Columns {
		_, std := abi.ColumnByName(col.Name)
		present[i] = std || abi.IsLabelColumn(col.Name)
	}
	l, err := abi.NewLayout(abi.LayoutSpec{
		Columns: present, Fields: len(m.manifest.RequestFields), Capacity: min(capacity, m.manifest.Limits.MaxRows),
		Adapter: m.manifest.HasKind(abi.KindLoraScorer) || m.manifest.HasKind(abi.KindPolicy),
	})
	if err != nil {
		return nil, refuse(StepManifest, abi.EManifest, err.Error(), "")
	}
	return &shape{l, newFiller(m, c, l)}, nil
}

func (s *shape) capacity() int { return s.layout.Capacity }

// capacityFor is the capacity that holds n rows: a power of two, so that a
// growing fleet does not ask for another frame with each worker; 0 when max_rows
// does not allow it.
func capacityFor(n, maxRows int) int {
	if n > maxRows {
		return 0
	}
	capacity := firstRows
	for capacity < n {
		capacity *= 2
	}
	return min(capacity, maxRows)
}

func tooMany(n, capacity, maxRows int, cannot error) *policy.Fault {
	detail := fmt.Sprintf("%d candidates; the module's frame holds %d and grows", n, capacity)
	if cannot != nil {
		detail = fmt.Sprintf("%d candidates; the module's frame holds %d and cannot grow: %s", n, capacity, cannot)
	}
	if n > maxRows {
		detail = fmt.Sprintf("%d candidates; the module's max_rows is %d", n, maxRows)
	}
	return &policy.Fault{Code: string(abi.EPool), Reason: reasonCapacity, Detail: detail}
}

// template is what is copied into every frame of a capacity.
type template struct {
	unwritten []float64 // the preset of scores
	ones      []byte    // the mask
	ids       []byte    // row ids, u32 little-endian
}

func newTemplate(capacity int) *template {
	t := &template{
		unwritten: make([]float64, capacity), ones: make([]byte, capacity), ids: make([]byte, 4*capacity),
	}
	for i := range capacity {
		t.unwritten[i] = math.Float64frombits(abi.UnwrittenBits)
		t.ones[i] = 1
		binary.LittleEndian.PutUint32(t.ids[4*i:], uint32(i))
	}
	return t
}
