//go:build !indexcheck

package runtrie_test

import "github.com/routerd/routerd/indexer/runtrie"

// check does nothing without the build tag indexcheck.
func check(*runtrie.Trie) error { return nil }

// leftOver is not told without the build tag.
func leftOver(*runtrie.Trie) int { return 0 }
