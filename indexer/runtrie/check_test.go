//go:build indexcheck

package runtrie_test

import "github.com/routerd/routerd/indexer/runtrie"

// check tells what is wrong with a trie.
func check(t *runtrie.Trie) error { return t.Check() }

// leftOver is how many nodes and areas wait to be used again.
func leftOver(t *runtrie.Trie) int { return t.Waiting() }
