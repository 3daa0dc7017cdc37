// Package meter makes a guest module safe to compile and to run: it decodes the whole module within static
// limits (ABI §7.2) and writes it anew with fuel metering in every body (fuel/1, ABI §8).
//
// # What it owns
//
// The section walk and all limits; extraction of the manifest bytes, imports and exports (their judgement is
// the host's); the decoder and encoder of core 2.0 with SIMD; where charges and checks stand.
//
//	m, err := meter.Decode(wasm, meter.DefaultLimits())  // *meter.Error names code, step, item, allowed
//	out, err := m.Rewrite(meter.Options{MemoryMaxPages: 64, StartFuel: 10_000, Slice: 10_000})
//
// # Invariants
//
// No guest byte range is copied into the output but names of imports and exports and the content of data
// segments (of which neighbours may be joined): an engine sees only what was decoded, in its shortest form. Every index of the input is checked
// against the size of its space, so a guest cannot name what the rewrite adds: the global __fuel, the import
// routerd_v1.__refuel and up to two locals per body. Decode and Rewrite never panic, whatever the bytes.
// What can have many MiB is copied in pieces of 256 KiB, a body at most at once: a collection waits for a copy's end.
//
// # Where charges stand
//
// A segment is a run of instructions that are executed together. One begins at function entry, after a loop,
// if, else or br_if, and after an end where control can join: the end of an if, and of a block that a branch
// names. The end of a loop and of a block that no branch names begin none; code that follows br, br_table,
// return or unreachable is never executed: it is in no segment and left out. A segment's price is subtracted at its beginning: Instruction for each instruction (else and end are none; block, loop and if belong to the segment
// before them), MemoryAccess more for loads and stores, (parameters + locals) / LocalsDivisor more if it does
// not begin the function, and for the first one the entry price. A segment at a loop head costs at least 1.
//
// # Where checks stand
//
// A check calls the refuel import when what is left is below zero. Checks stand at function entry, loop heads and
// before each operation charged by length; further where more than a tenth of a slice would otherwise be charged
// unchecked on some path (long segments are split for it), and in the first segment after a call that costs more
// than 3, so that a deep stack that unwinds meets checks too. Splitting and checking change no price: used fuel
// is granted − left, exact and the same on every host.
//
// # Where what is left is kept
//
// Inside a body in a local, which the engine can keep in a register; in __fuel before each call, branch out
// of the body, return, unreachable and end, and read back after each call. So __fuel is exact when a call of an
// export returns, when an import (refuel among them) looks, and when fuel or deadline end the call. After another
// trap (a load out of bounds, a division by zero) it may still hold the value of the last call or entry: what is
// reported as used is then a lower bound. Imports may lower __fuel to charge for their own work.
//
// The refuel import must leave __fuel at zero or more, or end the call: the guest looks again at loop heads only.
// Grant is its arithmetic. A memory operation over BulkMaxBytes or a table operation over BulkMaxElements is
// charged 2^62, which no budget covers. memory.grow by more pages than the memory's maximum can only answer
// −1, so it is charged as one page.
//
// # Where this differs from the text of the ABI
//
//   - Data segments: up to 100,000 before neighbours are joined (ABI: 1,024), which the Go linker needs.
//   - ref.func stands in element segments and global initialisers only: a body that executes it makes the engine
//     keep a new reference each time.
//   - Loops of one function: 1,024. Engines take time by their square: 8,000 empty ones take over 10 s to compile.
//     Other instructions that split a function (16,000 br_if fit in 64 KiB) are left to the compiler's CPU limit.
//   - Active data and element segments that do not fit are refused by the section walk as E_INIT_TRAP, since core 2.0
//     traps for them at instantiation. Nothing is imported that an offset could hang on, so it is always known. The
//     engine would leave out such elements, and all segments of elements behind them, and go on.
//   - What the engine validates is the original without its custom sections (WithoutCustom).
//   - Parameters and results of all types together: 16,384. Bodies after the rewrite: 32 MiB.
//   - The entry price (1 + body bytes / 16) does not bound the native stack: what lives across a call can take
//     a hundred times the body's bytes, whatever the body says (a call of 2 bytes has 16 results of 16 bytes).
//     The host bounds the stack where it can be seen: over 4 MiB at the end of a slice or of a call ends the call
//     as E_TRAP with reason stack. So it is at most 8 MiB and what one slice adds; in a start section, which no
//     slice's end can see, the engine's own 100 MB.
//   - fd_write logs at most 8 lines of a call, each an element's price more; the rest counts as dropped.
//   - A manifest's minor above the host's is E_ABI, as that of rp_abi_v1 is.
//   - config_schema: no recursion, no $dynamicRef, at most 10,000 steps for one value with every $ref written out;
//     numbers there, in configurations and in overrides have at most 64 characters and a finite f64.
//   - Modules are rewritten and compiled one at a time.
//   - The self-test's values are drawn anew for each load; measuring uses fixed ones.
//
// # How it is held to this
//
// testdata/fuel1.golden has the price of every opcode, measured by running it, and every other opcode is refused.
// Random modules (host/smith) run beside their metered forms on both engines: results, traps, memory, globals, tables
// and what imports are told must be equal. A second decoder proves that each output is paid for.
//
// The package starts no goroutine and keeps no state; a Module is immutable.
package meter
