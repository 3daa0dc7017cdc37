// Package abi is the contract between the host and a guest module: columns,
// request fields, frame layout, manifest, codes and the fuel schedule, as Go
// constants and tables. SDKs and docs/reference/abi.md are generated from
// here. It imports the standard library only and builds for
// GOOS=wasip1 GOARCH=wasm.
//
// Names never change meaning or unit; a new one is added at the end of its
// table with the minor version that brought it.
package abi

//go:generate go run ./gen
