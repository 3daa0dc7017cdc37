package core

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// readPrompt takes over the request's prompt: its length, its hashes, and what load
// counts its blocks by.
func (a *attempt) readPrompt(p *Partition) error {
	pr := &a.req.Prompt
	a.blocks, a.tokens, a.exact, a.text = pr.Blocks, pr.Count, pr.Exact, nil
	own := pr.Sequences
	if pr.Tokens != nil {
		if err := a.hash(p, pr); err != nil {
			return err
		}
		a.blocks, a.tokens, a.exact, a.text, own = a.hashes, len(pr.Tokens), true, pr.Text, nil
	}
	if len(own) != 0 && len(a.blocks) != 0 && len(own) != len(a.blocks) {
		return invalid(&fleet.FieldError{Field: "sequence_hashes", Value: strconv.Itoa(len(own)) + " hashes", Allowed: fmt.Sprintf("as many as block_hashes, %d", len(a.blocks))})
	}
	// Hashes that the caller brought cover at least their own blocks.
	known := max(len(a.blocks), len(own))
	a.tokens = max(a.tokens, known*p.blockSize) + pr.More
	a.blockCount = a.tokens / p.blockSize
	a.prefixes = kvcache.SequenceHashes(a.prefixes, a.blocks)
	switch {
	case !holds(a.req.AssumeReuse):
		a.sequences = unshared(known)
	case a.text != nil:
		a.textChain = kvcache.SequenceHashes(a.textChain, a.text)
		a.sequences = a.textChain[:min(len(a.textChain), known)]
	case len(own) != 0:
		a.sequences = own
	default:
		a.sequences = a.prefixes
	}
	return nil
}

// hash computes the block hashes of the prompt's tokens, as the partition's workers
// do where the prompt does not say otherwise.
func (a *attempt) hash(p *Partition, pr *Prompt) (err error) {
	how := kvcache.Hashing{Seed: kvcache.Seed(cmp.Or(a.req.Adapter, pr.Scope), pr.Salt), Bigram: p.eagle.Load(), Items: pr.Multimodal}
	if pr.Bigram != nil {
		how.Bigram = *pr.Bigram
	}
	if a.hashes, err = how.Blocks(a.hashes, pr.Tokens, p.blockSize); err != nil {
		return fmt.Errorf("hash prompt: %w", err)
	}
	return nil
}

// recordedExactly tells whether those are the blocks of the prompt's tokens.
func (a *attempt) recordedExactly() bool { return a.exact && a.text == nil }

// recorded are the blocks by which the index learns of a booking.
func (a *attempt) recorded() []kvcache.BlockHash {
	if a.text != nil {
		return a.text
	}
	return a.blocks
}

// unshared are hashes that stand for the blocks of one request alone.
func unshared(n int) []kvcache.SequenceHash {
	hashes := make([]kvcache.SequenceHash, n)
	for i := range hashes {
		hashes[i] = kvcache.SequenceHash(rand.Uint64())
	}
	return hashes
}
