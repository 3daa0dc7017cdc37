package policy

import "github.com/routerd/routerd/plugins/abi"

// The settings of stages that count a request's uncached tokens, first in their
// lists: what a cached block of a tier below the device is worth.
const (
	hostWeight = iota
	diskWeight
	sharedWeight
)

var tierSettings = settings{
	{name: "host_weight", unless: 0.75, high: 1},
	{name: "disk_weight", unless: 0.25, high: 1},
	{name: "shared_weight", unless: 0.5, high: 1},
}

// uncached tells how many tokens of a prompt each candidate has to prefill.
type uncached struct {
	device, host, disk, shared    []float64
	tokens, size                  float64
	hostPart, diskPart, otherPart float64
}

func addUncached(set *ColumnSet) {
	set.AddStd(abi.ColKVOverlapDevice, abi.ColKVOverlapHost, abi.ColKVOverlapDisk, abi.ColKVOverlapShared)
}

func uncachedOf(t *Table, n *numbers) uncached {
	rows := t.Len()
	return uncached{
		device: t.Column(abi.ColKVOverlapDevice)[:rows], host: t.Column(abi.ColKVOverlapHost)[:rows],
		disk: t.Column(abi.ColKVOverlapDisk)[:rows], shared: t.Column(abi.ColKVOverlapShared)[:rows],
		tokens: t.Field(abi.FieldISLTokens), size: t.Field(abi.FieldBlockSize),
		hostPart: n[hostWeight], diskPart: n[diskWeight], otherPart: n[sharedWeight],
	}
}

// at is the row's number of tokens, never negative.
func (u *uncached) at(row int) float64 {
	blocks := u.device[row] + float64(u.hostPart*u.host[row])
	blocks += float64(u.diskPart * u.disk[row])
	blocks += float64(u.otherPart * u.shared[row])
	return larger(u.tokens-float64(blocks*u.size), 0)
}
