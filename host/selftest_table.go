package host

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// missEvery is how far apart the rows without signals are in hostile columns.
const missEvery = 4

// draw is what the values of a self-test hang on.
type draw struct {
	seed uint64
	now  time.Time
}

// freshDraw is another one for each load.
func freshDraw() draw { return draw{seed: rand.Uint64(), now: time.Now()} }

// fixedDraw gives the same fuel for the same module each time.
func fixedDraw() draw { return draw{now: time.UnixMilli(1_750_000_000_000)} }

// testTable makes a table that looks like a live one.
func testTable(m *module, kind abi.Kind, rows int, round string, d draw) *policy.Table {
	t := &policy.Table{}
	t.Reset(rows, m.columns)
	g := &generator{x: splitMix64(d.seed ^ splitMix64(uint64(rows)) ^ uint64(len(round)))}
	t.Seed = g.next()
	for i := range t.Rows {
		t.Rows[i].ID = 1
		t.Rows[i].Rank = uint32(i)
	}
	for i, field := range abi.Fields() {
		t.SetField(abi.Field(i), g.value(round, field.Unit))
	}
	t.SetField(abi.FieldNowMs, float64(d.now.UnixMilli()))
	t.SetField(abi.FieldDecisionID, float64(1+g.next()%maxTestDecision))
	t.SetField(abi.FieldNTotalWorkers, float64(rows))
	if kind == abi.KindLoraScorer { // called only where there is an adapter
		t.SetField(abi.FieldHasLora, 1)
	}
	for _, name := range m.columns.Names() {
		unit := "id"
		if c, ok := abi.ColumnByName(name); ok {
			unit = c.Info().Unit
		}
		cells := t.NamedCells(name)
		col := cells.Fill()
		for row := range col {
			col[row] = g.value(round, unit)
		}
		if name == abi.ColWorkerID.Info().Name {
			for row := range col {
				col[row] = max(1, g.value(roundRandom, unit))
			}
			continue // never missing
		}
		for row := 0; row < rows && round == roundHostile; row += missEvery {
			cells.Miss(row)
		}
	}
	return t
}

// maxTestDecision bounds the numbers of tested decisions: a router's first
// million.
const maxTestDecision = 1_000_000

// generator draws test values by SplitMix64, so that a test can be repeated from
// its seed.
type generator struct{ x uint64 }

func (g *generator) next() uint64 {
	g.x++
	return splitMix64(g.x)
}

// hostileValues are finite numbers at the edges; infinities never reach a
// column, and NaN only in the place of a missing signal.
var hostileValues = [...]float64{
	0, math.Copysign(0, -1), 1, -1, math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, abi.MissingAge,
	1 << 53, -(1 << 53), 1e300, -1e300, 0.1, 4294967296, 2147483648, 18446744073709551616,
}

func (g *generator) value(round, unit string) float64 {
	x := g.next()
	unitFloat := float64(x>>11) / (1 << 53)
	switch {
	case round == roundZero:
		return 0
	case round == roundHostile:
		return hostileValues[x%uint64(len(hostileValues))]
	case unit == "0 or 1":
		return float64(x & 1)
	case unit == "0 to 1", unit == "factor":
		return unitFloat
	case unit == "id":
		return float64(x >> 11)
	case unit == "tokens":
		return float64(x % 32_768)
	case unit == "ms":
		return float64(x % 60_000)
	case unit == "rank", unit == "adapters", unit == "ranks":
		return float64(x % 16)
	}
	return float64(x % 2_048)
}
