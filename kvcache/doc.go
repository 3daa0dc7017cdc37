// Package kvcache is the vocabulary of KV-cache events: how a prompt's tokens become block hashes, what an
// engine's event says, on which tier a block lives, and how much of a prompt a worker holds.
//
// It owns the block identity that the whole router shares. A block hash is XXH3-64 over the little-endian bytes of
// exactly one full block of token ids, seeded by adapter and cache salt; an engine's own hashes are opaque names
// that only resolve parents and removals. The package has no state, starts no goroutine and imports only xxh3.
//
//	seed := kvcache.Seed("sql-adapter", "")
//	blocks, err := kvcache.BlockHashes(nil, tokens, 16, seed)
package kvcache
