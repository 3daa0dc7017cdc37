package rpmath_test

import (
	"bufio"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/routerd/routerd/plugins/abi"
	"github.com/routerd/routerd/plugins/abi/rpmath"
)

var update = flag.Bool("update", false, "write the golden vectors again")

const golden = "testdata/golden.txt"

// inputs are what the golden vectors are made of: the edges, and numbers of all
// sizes from a fixed seed.
func inputs() []float64 {
	out := []float64{
		0, math.Copysign(0, -1), 1, -1, 0.5, -0.5, 2, math.E, math.Ln2, -math.Ln2, math.Ln2 / 2, math.Sqrt2, math.Sqrt2 / 2,
		math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64,
		709.782712893384, 709.7827128933841, 710, 711, -708.3964185322641, -708.4, -745.1332191019411, -745.1332191019412, -745.14, -746, -747,
		0x1p-1022, 0x1p-1023, 0x1p-1074, 0x1.fffffffffffffp-1, 0x1.0000000000001p0, 1e-300, 1e300, 1e-17, -1e-17,
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		out = append(out, (r.Float64()-0.5)*1500, (r.Float64()-0.5)*2, math.Ldexp(r.Float64(), r.IntN(2098)-1074))
	}
	return out
}

func TestGoldenVectors(t *testing.T) {
	if *update {
		var b strings.Builder
		b.WriteString("# input, exp, log: bits of float64 in hexadecimal\n")
		for _, x := range inputs() {
			fmt.Fprintf(&b, "%016x %016x %016x\n", math.Float64bits(x), math.Float64bits(rpmath.Exp(x)), math.Float64bits(rpmath.Log(x)))
		}
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	n := 0
	for lines.Scan() {
		var x, exp, log uint64
		if _, err := fmt.Sscanf(lines.Text(), "%x %x %x", &x, &exp, &log); err != nil {
			continue // the heading
		}
		n++
		v := math.Float64frombits(x)
		if got := math.Float64bits(rpmath.Exp(v)); got != exp {
			t.Errorf("Exp(%v) has bits %016x; want %016x", v, got, exp)
		}
		if got := math.Float64bits(rpmath.Log(v)); got != log {
			t.Errorf("Log(%v) has bits %016x; want %016x", v, got, log)
		}
	}
	if want := len(inputs()); n != want {
		t.Errorf("the file has %d vectors; want %d", n, want)
	}
}

func TestSpecialValues(t *testing.T) {
	nan, inf := math.Float64frombits(abi.CanonicalNaNBits), math.Inf(1)
	other := math.Float64frombits(0xFFF8000000000123)
	for _, c := range []struct {
		name string
		f    func(float64) float64
		x    float64
		want float64
	}{
		{"exp", rpmath.Exp, other, nan},
		{"exp", rpmath.Exp, inf, inf},
		{"exp", rpmath.Exp, -inf, 0},
		{"exp", rpmath.Exp, 0, 1},
		{"exp", rpmath.Exp, math.Copysign(0, -1), 1},
		{"exp", rpmath.Exp, 709.79, inf},
		{"exp", rpmath.Exp, math.MaxFloat64, inf},
		{"exp", rpmath.Exp, -745.14, 0},
		{"exp", rpmath.Exp, -math.MaxFloat64, 0},
		{"log", rpmath.Log, other, nan},
		{"log", rpmath.Log, inf, inf},
		{"log", rpmath.Log, -inf, nan},
		{"log", rpmath.Log, -1e-300, nan},
		{"log", rpmath.Log, 0, -inf},
		{"log", rpmath.Log, math.Copysign(0, -1), -inf},
		{"log", rpmath.Log, 1, 0},
	} {
		if got := c.f(c.x); math.Float64bits(got) != math.Float64bits(c.want) {
			t.Errorf("%s(%v) = %v (%016x); want %v", c.name, c.x, got, math.Float64bits(got), c.want)
		}
	}
}

// ulps is how many numbers lie between two of equal sign.
func ulps(a, b float64) float64 {
	return math.Abs(float64(int64(math.Float64bits(a)) - int64(math.Float64bits(b))))
}

// logOf is package math's, which on some machines is wrong for subnormal
// numbers.
func logOf(x float64) float64 {
	if x < 0x1p-1022 {
		return math.Log(x*0x1p54) - 54*math.Ln2
	}
	return math.Log(x)
}

func TestErrorIsAtMostTwoUnitsInTheLastPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var worstExp, worstLog float64
	for range 200_000 {
		x := r.Float64()*1454 - 745
		worstExp = max(worstExp, ulps(rpmath.Exp(x), math.Exp(x)))
		small := (r.Float64() - 0.5) * 2
		worstExp = max(worstExp, ulps(rpmath.Exp(small), math.Exp(small)))
		y := math.Ldexp(r.Float64(), r.IntN(2098)-1074)
		if y > 0 {
			worstLog = max(worstLog, ulps(rpmath.Log(y), logOf(y)))
		}
		near := 1 + (r.Float64()-0.5)*math.Pow(2, -float64(r.IntN(50)))
		worstLog = max(worstLog, ulps(rpmath.Log(near), math.Log(near)))
	}
	t.Logf("largest differences from package math: exp %v, log %v units", worstExp, worstLog)
	if worstExp > 2 || worstLog > 2 {
		t.Errorf("exp differs by %v, log by %v units in the last place; want at most 2", worstExp, worstLog)
	}
}

func TestExpGrows(t *testing.T) {
	last := 0.0
	for x := -746.0; x < 710; x += 1.0 / 64 {
		v := rpmath.Exp(x)
		if v < last {
			t.Fatalf("Exp(%v) = %v is below what is before it, %v", x, v, last)
		}
		last = v
	}
}
