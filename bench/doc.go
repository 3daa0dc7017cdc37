// Package bench measures the whole program; units are measured beside their
// code. It holds only benchmarks and the test that shows that what they compare
// does the same work. docs/benchmarks/README.md says what each figure means.
//
// Where the CPU time of one program counts, that program is a process of its
// own: the test binary started again (see child_test.go), which tells its own
// use of the processor. What is compared is measured in one run, in turns, and
// told as medians and as ratios of medians: absolute figures hold for one
// machine at one moment.
//
//	make bench PKG=./bench
package bench
