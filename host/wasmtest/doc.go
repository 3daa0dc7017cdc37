// Package wasmtest writes Wasm modules for tests: an assembler that writes
// whatever it is told, right or wrong, and Guest, a scorer module whose parts
// can be replaced one by one. It is for tests only and is no part of the
// product.
package wasmtest
