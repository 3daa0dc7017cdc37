package exact_test

import (
	"testing"

	"github.com/routerd/routerd/indexer"
	"github.com/routerd/routerd/indexer/exact"
	"github.com/routerd/routerd/indexer/indextest"
)

func newIndex(blockSize int) indexer.Indexer { return exact.New(blockSize) }

func TestI3_IndexEqualsThePlainModel(t *testing.T) {
	indextest.Run(t, newIndex)
}

func TestI3_AnIndexThatGivesBlocksUpEqualsThePlainModelWithoutThem(t *testing.T) {
	indextest.Run(t, func(blockSize int) indexer.Indexer { return exact.NewEvicting(blockSize) })
}

func TestScriptsAreReplayed(t *testing.T) {
	indextest.Replay(t, newIndex, `
		{"do":"stored","worker":1,"hashes":[10,11],"tokens":[1,2,3,4],"block_size":2}
		{"do":"find","worker":0,"tokens":[1,2,3,4,5]}
		{"do":"removed","worker":1,"hashes":[10]}
		{"do":"find","worker":0,"tokens":[1,2,3,4,5]}`)
}

// Content that could not be indexed on a tier and is announced there, being known on another, is known there.
func TestABlockThatIsAnnouncedIsOpaqueNoMore(t *testing.T) {
	indextest.Replay(t, newIndex, `
		{"do":"stored","worker":1,"tier":1,"hashes":[1],"tokens":[0,1],"block_size":2}
		{"do":"stored","worker":1,"hashes":[1],"tokens":[0,1],"block_size":2,"opaque":0}
		{"do":"stored","worker":1,"hashes":[1]}
		{"do":"removed","worker":1,"hashes":[1]}
		{"do":"removed","worker":1,"hashes":[1]}
	`)
}
