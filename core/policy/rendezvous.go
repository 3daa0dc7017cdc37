package policy

import "github.com/routerd/routerd/plugins/abi"

// rendezvous gives each rank a number in [0, 1) for a key, as if by chance but
// always the same one: the rank with the highest is the key's, and when ranks come
// and go only the keys of those ranks move. It is made of the columns worker.id
// and worker.dp_rank alone, so that a module can compute it too.
func rendezvous(key, id, rank float64) float64 {
	return unit(SplitMix64(uint64(key) ^ SplitMix64(uint64(id)^SplitMix64(uint64(rank)))))
}

// addRendezvous adds the columns that rendezvous reads.
func addRendezvous(set *ColumnSet) { set.AddStd(abi.ColWorkerID, abi.ColWorkerDPRank) }

// scoreRendezvous writes every row's number for a key.
func scoreRendezvous(t *Table, key float64, scores []float64) {
	id, rank := t.Column(abi.ColWorkerID)[:len(scores)], t.Column(abi.ColWorkerDPRank)[:len(scores)]
	for i := range scores {
		scores[i] = rendezvous(key, id[i], rank[i])
	}
}
