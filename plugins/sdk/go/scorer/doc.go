// Package scorer is the SDK for plugins of kind scorer: one function that gives
// every candidate of a request a number, higher is better.
//
//	package main
//
//	import "github.com/routerd/routerd/plugins/sdk/go/scorer"
//
//	func main() {} // never called: the module is a library
//
//	func init() {
//		scorer.Register(scorer.Plugin{Columns: []string{"load.active_requests"}, Score: fewest})
//	}
//
//	func fewest(b *scorer.Batch) error {
//		active, scores := b.Column(0), b.Scores()
//		for i := range b.Len() {
//			scores.Set(i, -active.At(i))
//		}
//		return nil
//	}
//
// Build it by
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o plugin.wasm .
//
// Two rules keep a policy the same on every machine: each product that is added
// or subtracted is written float64(x*y), so that no compiler fuses the two, and
// maxima are Max and Min of this package. Ranging over a map has no fixed order
// in Go: do not let a score depend on it.
//
// Take columns before the loop and call no function of your own in it that the
// compiler does not inline: a call costs a guest more than all the arithmetic of
// a row.
package scorer
