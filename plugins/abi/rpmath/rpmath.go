// Package rpmath has the exponential function and the logarithm of the policy
// ABI: one fixed sequence of additions, subtractions, multiplications and
// divisions of float64 for each, every product rounded by itself, so that every
// language and every machine gives the same bits. The functions that languages
// come with differ in their last bits, as do machines that fuse a product with
// the sum that follows. It keeps no state.
//
// The results are within 1 unit in the last place of the exact ones (a test
// asserts 2 against package math).
//
//	w := rpmath.Exp(-cost / temperature)
package rpmath

import "math"

// canonicalNaN is the one NaN that the functions return.
const canonicalNaN = 0x7FF8000000000000

const (
	log2e = 1.44269504088896338700
	// ln2 in two parts; the high one has its last 32 bits 0, so that its product
	// with an exponent is exact.
	ln2High = 6.93147180369123816490e-01
	ln2Low  = 1.90821492927058770002e-10
	sqrt2   = 1.41421356237309504880
)

// Exp is e to the power of x. It is +Inf from about 709.78 up, 0 below about
// −745.13, the canonical NaN for a NaN.
func Exp(x float64) float64 {
	switch {
	case x != x:
		return math.Float64frombits(canonicalNaN)
	case x > 710:
		return math.Inf(1)
	case x < -746:
		return 0
	}
	// x = k·ln2 + r with |r| ≤ ln2/2.
	half := 0.5
	if x < 0 {
		half = -0.5
	}
	k := int(float64(x*log2e) + half)
	r := x - float64(float64(k)*ln2High) - float64(float64(k)*ln2Low)
	// The power series to r^13, in Horner's form.
	p := 1.0 / 6227020800
	p = 1.0/479001600 + float64(r*p)
	p = 1.0/39916800 + float64(r*p)
	p = 1.0/3628800 + float64(r*p)
	p = 1.0/362880 + float64(r*p)
	p = 1.0/40320 + float64(r*p)
	p = 1.0/5040 + float64(r*p)
	p = 1.0/720 + float64(r*p)
	p = 1.0/120 + float64(r*p)
	p = 1.0/24 + float64(r*p)
	p = 1.0/6 + float64(r*p)
	p = 0.5 + float64(r*p)
	p = 1 + float64(r*p)
	p = 1 + float64(r*p)
	return scale(p, k)
}

// scale is p·2^k for p from 0.5 to 2 and k from −1077 to 1025, rounded once.
func scale(p float64, k int) float64 {
	switch {
	case k > 1023:
		return float64(float64(p*powerOf2(1023)) * powerOf2(k-1023))
	case k < -1021:
		return float64(float64(p*powerOf2(k+64)) * powerOf2(-64))
	}
	return float64(p * powerOf2(k))
}

// powerOf2 is 2^k for k from −1022 to 1023.
func powerOf2(k int) float64 { return math.Float64frombits(uint64(k+1023) << 52) }

// Log is the natural logarithm of x. It is −Inf for 0 of either sign and the
// canonical NaN for a NaN and below 0.
func Log(x float64) float64 {
	switch {
	case x != x || x < 0:
		return math.Float64frombits(canonicalNaN)
	case x == 0:
		return math.Inf(-1)
	case x > math.MaxFloat64:
		return x
	}
	k := 0
	if x < powerOf2(-1022) { // subnormal
		x *= powerOf2(54)
		k = -54
	}
	// x = m·2^k with m from √2/2 to √2.
	bits := math.Float64bits(x)
	k += int(bits>>52) - 1023
	m := math.Float64frombits(bits&(1<<52-1) | 1023<<52)
	if m > sqrt2 {
		m *= 0.5
		k++
	}
	// With s = f/(2+f), ln(1+f) = 2·(s + s³/3 + s⁵/5 + …) to s^23. The series
	// after its first term is q·s; the first is f − s·f, of which f is exact.
	f := m - 1
	s := f / (2 + f)
	z := float64(s * s)
	q := 2.0 / 23
	q = 2.0/21 + float64(z*q)
	q = 2.0/19 + float64(z*q)
	q = 2.0/17 + float64(z*q)
	q = 2.0/15 + float64(z*q)
	q = 2.0/13 + float64(z*q)
	q = 2.0/11 + float64(z*q)
	q = 2.0/9 + float64(z*q)
	q = 2.0/7 + float64(z*q)
	q = 2.0/5 + float64(z*q)
	q = 2.0/3 + float64(z*q)
	q = float64(z * q)
	half := float64(float64(0.5*f) * f)
	rest := float64(s * (half + q))
	n := float64(k)
	return float64(n*ln2High) - ((half - (rest + float64(n*ln2Low))) - f)
}
