// Package smith makes valid WebAssembly modules at random for tests, to run a module and its rewritten form side by
// side. Hostile ones, to see where each is refused, are made by the package hostiletest below it.
//
//	rnd := rand.New(rand.NewPCG(seed, 0))
//	wasm := smith.Module(rnd, smith.DefaultOptions())
//
// # Valid modules
//
// Module draws from all of core 2.0 with SIMD but ref.func inside bodies, which hosts may refuse. Equal draws give
// equal bytes. What a module does depends on its bytes, the arguments and the imports alone: every float result whose
// NaN bits an engine may choose is made canonical, no growth depends on the machine within the module's maxima, and
// a countdown ends every call. Active segments fit, so a module can always be instantiated unless its start function
// ends it. Exports:
//
//   - "f0", "f1", …: functions of any type
//   - "memory"; "steps", the countdown: a mutable i32 to set before each call (Options.Steps is its first value).
//     Entering a function and branching back take one; at 0 the module executes unreachable
//   - "global0", …: the value of each global, a reference as whether it is null
//   - "size": how many entries the table has; "null": how many of them are null
//
// A module may import functions of module "smith": "mix" (i64) -> (i64) and "tick" () -> ().
//
// The package knows nothing of the code that it is to prove right: its table of instructions is its own. Nothing
// here starts goroutines; tests alone import it.
package smith
