package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// Rounds of the self-test: what the columns hold.
const (
	roundZero    = "zero"
	roundRandom  = "random"
	roundHostile = "hostile"
)

// Measure is the fuel that a module's calls used, by rows.
type Measure struct {
	Rows   []int
	Fuel   []uint64 // the most of all rounds
	Budget []uint64
}

// Declare returns the fuel_base and fuel_per_row that cover twice what was
// measured.
func (m Measure) Declare() (base, perRow uint64) {
	if len(m.Rows) == 0 {
		return abi.DefaultFuelBase, abi.DefaultFuelPerRow
	}
	last := len(m.Rows) - 1
	if rows := uint64(m.Rows[last] - m.Rows[0]); rows > 0 && m.Fuel[last] > m.Fuel[0] {
		perRow = (2*(m.Fuel[last]-m.Fuel[0]) + rows - 1) / rows
	}
	for i, n := range m.Rows {
		if need, have := 2*m.Fuel[i], perRow*uint64(n); need > have {
			base = max(base, need-have)
		}
	}
	return base, perRow
}

// selfTest is ABI §7 step 7: frames of 1, 8, 64 and 1,000 rows (at most what the
// frame holds) with zero, random and hostile columns, the last with missing
// signals among them, on two instances. Traps,
// unequal bits and more than 80 % of the budget are refused; so are results
// that cannot be believed, but for hostile columns only where a row was not
// written. What a guest sees of seeds, clock and ids looks as it does in live
// calls and is drawn from d, so that it cannot behave for the test alone.
func (r *Runtime) selfTest(m *module, c *configuration, on []*instance, d draw) (Measure, error) {
	f := newFiller(m, c)
	var out Measure
	for _, rows := range testRows(m.layout.Capacity) {
		budget := r.budget(m.manifest, rows)
		most := uint64(0)
		for _, round := range []string{roundZero, roundRandom, roundHostile} {
			used, err := r.testFrame(m, f, on, testTable(m, rows, round, d), round, budget)
			if err != nil {
				return out, err
			}
			most = max(most, used)
		}
		out.Rows = append(out.Rows, rows)
		out.Fuel = append(out.Fuel, most)
		out.Budget = append(out.Budget, budget)
	}
	for i, used := range out.Fuel {
		if used > out.Budget[i]/5*4 {
			base, perRow := out.Declare()
			return out, refuse(StepSelfTest, abi.EFuel, fmt.Sprintf("%d rows used %d fuel of a budget of %d", out.Rows[i], used, out.Budget[i]),
				fmt.Sprintf("80 %% of the budget; declare limits fuel_base %d and fuel_per_row %d", base, perRow))
		}
	}
	return out, nil
}

// testFrame runs one frame twice on each instance and compares: what a guest
// keeps from call to call must not show.
func (r *Runtime) testFrame(m *module, f *filler, on []*instance, t *policy.Table, round string, budget uint64) (uint64, error) {
	where := fmt.Sprintf("%d rows, %s columns", t.Len(), round)
	var first []uint64
	var firstCode abi.GuestCode
	var most uint64
	for i, in := range slices.Concat(on, on) {
		code, used, fault := in.scoreCall(f, t, budget, 0)
		most = max(most, used)
		if fault != nil {
			return most, r.testFault(m, where, fault, t.Len(), budget)
		}
		scores := make([]float64, t.Len())
		copy(scores, in.f64[m.layout.Scores/8:])
		bits := resultBits(code, scores)
		if i == 0 {
			first, firstCode = bits, code
		} else if code != firstCode || !slices.Equal(first, bits) {
			return most, refuse(StepSelfTest, abi.ENondeterministic, where+": calls with the same frame gave other bits", "equal bits for equal frames")
		}
		if code != abi.GuestOK {
			continue
		}
		if _, fault := in.take(m.layout, scores, m.manifest.ScoreRange); fault != nil && (round != roundHostile || fault.Reason == reasonUnwritten) {
			return most, refuse(StepSelfTest, abi.HostCode(fault.Code), where+": "+fault.Detail, "a result that can be believed")
		}
	}
	return most, nil
}

func (r *Runtime) testFault(m *module, where string, fault *policy.Fault, rows int, budget uint64) error {
	if fault.Reason != reasonFuel {
		return refuse(StepSelfTest, abi.HostCode(fault.Code), where+": "+fault.Detail, "a call without a trap")
	}
	allowed := fmt.Sprintf("a call within 80 %% of the budget of %d fuel", budget)
	if budget < r.cfg.FuelCap {
		allowed += fmt.Sprintf("; declare larger limits: fuel_base is %d, fuel_per_row %d, the operator's cap %d",
			m.manifest.Limits.FuelBase, m.manifest.Limits.FuelPerRow, r.cfg.FuelCap)
	}
	return refuse(StepSelfTest, abi.EFuel, where+": "+fault.Detail, allowed)
}

// resultBits is what two instances must agree on.
func resultBits(code abi.GuestCode, scores []float64) []uint64 {
	if code != abi.GuestOK {
		return nil
	}
	bits := make([]uint64, len(scores))
	for i, v := range scores {
		bits[i] = math.Float64bits(v)
		if v != v && bits[i] != abi.UnwrittenBits {
			bits[i] = abi.CanonicalNaNBits // a NaN's payload is the engine's, not the guest's
		}
	}
	return bits
}

func testRows(capacity int) []int {
	var rows []int
	for _, n := range []int{1, 8, 64, 1000} {
		if n = min(n, capacity); !slices.Contains(rows, n) {
			rows = append(rows, n)
		}
	}
	return rows
}

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
func testTable(m *module, rows int, round string, d draw) *policy.Table {
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

// Measure runs the self-test's frames over a module and returns the fuel that
// they used, always with the same values. The module is treated as trusted if the Runtime's compiler is
// InProcess.
func (r *Runtime) Measure(ctx context.Context, wasm []byte, config json.RawMessage) (out Measure, err error) {
	m, err := r.load(ctx, wasm, Digest(wasm))
	if err != nil {
		return Measure{}, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	c, err := m.configure(config)
	if err != nil {
		return Measure{}, err
	}
	in, err := r.newInstance(m, c, &guestLog{mute: true})
	if err != nil {
		return Measure{}, err
	}
	defer in.close()
	return r.selfTest(m, c, []*instance{in}, fixedDraw())
}
