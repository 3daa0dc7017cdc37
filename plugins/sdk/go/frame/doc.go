// Package frame reads the frame that the host fills for each call: one block of
// memory with a column of float64 per signal and a row per candidate. Plugin
// authors meet it as scorer.Batch.
//
// Columns, scores and masks are read by pointer and row, so that the compiler
// makes a short loop of it. In a guest nothing checks a row against the frame:
// stay below Len. In a native build (unit tests) every access is checked and
// panics.
//
// A View is used by one goroutine at a time and holds no copy of anything: what
// it reads changes with the next call.
package frame
