package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// Rounds of the self-test: what the columns hold.
const (
	roundZero    = "zero"
	roundRandom  = "random"
	roundHostile = "hostile"
	roundMasked  = "masked" // random values, and rows that earlier filters dropped
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
// signals among them, and random ones with masked rows, on two instances, for
// each kind. Traps, unequal bits and more than 80 % of the budget are refused; so
// are results that cannot be believed, but for scores over hostile columns only
// where a row was not written. What a guest sees of seeds, clock and ids looks as
// it does in live calls and is drawn from d, so that it cannot behave for the
// test alone.
func (r *Runtime) selfTest(m *module, on []*instance, d draw) (Measure, error) {
	var out Measure
	for _, rows := range testRows(on[0].shape.capacity()) {
		budget := m.budget(r.limits.Load().FuelCap, rows)
		most := uint64(0)
		for _, kind := range m.manifest.Kinds {
			used, err := r.testKind(m, on, kind, rows, d, budget)
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
		if tooMuch(used, out.Budget[i]) {
			base, perRow := out.Declare()
			return out, refuse(StepSelfTest, abi.EFuel, fmt.Sprintf("%d rows used %d fuel of a budget of %d", out.Rows[i], used, out.Budget[i]),
				fmt.Sprintf("80 %% of the budget; declare limits fuel_base %d and fuel_per_row %d", base, perRow))
		}
	}
	m.measured.Store(&out)
	return out, nil
}

// tooMuch tells whether a test used more than 80 % of a budget.
func tooMuch(used, budget uint64) bool { return used > budget/5*4 }

// testKind runs the frames of one kind and one size and returns the most fuel
// that one used.
func (r *Runtime) testKind(m *module, on []*instance, kind abi.Kind, rows int, d draw, budget uint64) (most uint64, err error) {
	for _, round := range []string{roundZero, roundRandom, roundHostile, roundMasked} {
		c := call{kind: kind, number: kindNumber(kind), table: testTable(m, kind, rows, round, d), budget: budget, quiet: true}
		if round == roundMasked {
			c.mask = testMask(rows)
		}
		used, err := r.testFrame(m, on, &c, round)
		if err != nil {
			return most, err
		}
		most = max(most, used)
	}
	return most, nil
}

// testFrame runs one frame twice on each instance and compares: what a guest
// keeps from call to call must not show, unless it says that it keeps something.
// Then only the instances must agree.
func (r *Runtime) testFrame(m *module, on []*instance, c *call, round string) (uint64, error) {
	where := fmt.Sprintf("%s, %d rows, %s columns", c.kind.Export(), c.table.Len(), round)
	var all []testResult
	var most uint64
	for i, in := range slices.Concat(on, on) {
		code, used, fault := in.run(c)
		most = max(most, used)
		if fault != nil {
			return most, r.testFault(m, where, fault, c)
		}
		all = append(all, testResult{code, resultBits(in, c, code)})
		first := 0
		if m.manifest.State == abi.StateInstance {
			first = i / len(on) * len(on)
		}
		if !all[i].equal(all[first]) {
			return most, refuse(StepSelfTest, abi.ENondeterministic, where+": calls with the same frame gave other bits", "equal bits for equal frames")
		}
		if code != abi.GuestOK {
			continue
		}
		fault = in.take(c, testRoom(c))
		if fault != nil && (round != roundHostile || fault.Reason != reasonNaN && fault.Reason != reasonRange) {
			return most, refuse(StepSelfTest, abi.HostCode(fault.Code), where+": "+fault.Detail, "a result that can be believed")
		}
	}
	return most, nil
}

// testRoom is where a result is copied to.
func testRoom(c *call) *result {
	keep := slices.Clone(c.mask)
	for len(keep) < c.table.Len() {
		keep = append(keep, 1)
	}
	return &result{scores: make([]float64, c.table.Len()), keep: keep}
}

// testMask keeps two rows of three, the first always.
func testMask(rows int) []byte {
	mask := make([]byte, rows)
	for i := range mask {
		if i%3 != 2 {
			mask[i] = 1
		}
	}
	return mask
}

func (r *Runtime) testFault(m *module, where string, fault *policy.Fault, c *call) error {
	if fault.Reason != reasonFuel {
		return refuse(StepSelfTest, abi.HostCode(fault.Code), where+": "+fault.Detail, "a call without a trap")
	}
	allowed := fmt.Sprintf("a call within 80 %% of the budget of %d fuel", c.budget)
	if ceiling := r.limits.Load().FuelCap; c.budget < ceiling {
		allowed += fmt.Sprintf("; declare larger limits: fuel_base is %d, fuel_per_row %d, the operator's cap %d",
			m.manifest.Limits.FuelBase, m.manifest.Limits.FuelPerRow, ceiling)
	}
	return refuse(StepSelfTest, abi.EFuel, where+": "+fault.Detail, allowed)
}

// testResult is what two instances must agree on.
type testResult struct {
	code abi.GuestCode
	bits []uint64
}

func (r testResult) equal(o testResult) bool { return r.code == o.code && slices.Equal(r.bits, o.bits) }

// resultBits are the scores, mask bytes, pick and out-flags as a call left them,
// in so far as its kind answers by them.
func resultBits(in *instance, c *call, code abi.GuestCode) (bits []uint64) {
	if code != abi.GuestOK {
		return nil
	}
	n := c.table.Len()
	for row, v := range in.f64[in.shape.layout.Scores/8:][:n] {
		b := math.Float64bits(v)
		if v != v && b != abi.UnwrittenBits {
			b = abi.CanonicalNaNBits // a NaN's payload is the engine's, not the guest's
		}
		if keeps(c.mask, row) && c.kind != abi.KindFilter && c.kind != abi.KindPicker {
			bits = append(bits, b)
		}
	}
	for row, b := range in.frameMask(n) {
		if keeps(c.mask, row) && (c.kind == abi.KindFilter || c.kind == abi.KindPolicy) {
			bits = append(bits, uint64(b))
		}
	}
	if c.kind == abi.KindPicker || c.kind == abi.KindPolicy {
		bits = append(bits, uint64(in.pick()), uint64(in.outFlags()))
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
	return r.selfTest(m, []*instance{in}, fixedDraw())
}
