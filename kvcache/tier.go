package kvcache

import "strings"

// Tier is a kind of memory that a worker can hold blocks in, fastest first.
type Tier uint8

// The tiers. Shared is memory outside the worker that it can load from.
const (
	Device Tier = iota
	Host
	Disk
	Shared
)

// Tiers is the number of tiers; arrays with an element per tier have this length.
const Tiers = 4

// String returns the tier's name in our own APIs.
func (t Tier) String() string {
	switch t {
	case Device:
		return "device"
	case Host:
		return "host"
	case Disk:
		return "disk"
	case Shared:
		return "shared"
	}
	return "unknown"
}

// ParseMedium returns the tier of an engine's medium name, without regard to case. An empty name is the device.
// It reports false for a name that no engine is known to use: such blocks must not count as anything.
func ParseMedium(name string) (Tier, bool) {
	switch {
	case name == "":
		return Device, true
	case anyFold(name, "GPU", "DEVICE"):
		return Device, true
	case anyFold(name, "CPU", "CPU_PINNED", "CPU_TIER1"):
		return Host, true
	case anyFold(name, "CPU_TIER2", "DISK", "NVME", "STORAGE", "FS", "OBJ"):
		return Disk, true
	case anyFold(name, "EXTERNAL", "NETWORK", "REMOTE", "SHARED"):
		return Shared, true
	}
	return Device, false
}

// TierCounts is a number of blocks per tier.
type TierCounts [Tiers]int

// Overlap says how many leading blocks of a prompt a worker holds. Device counts from block 0; each other field
// counts the blocks by which the prefix gets longer when that tier is searched too, after the tiers before it.
type Overlap struct {
	Device, Host, Disk, Shared uint32
}

func anyFold(name string, known ...string) bool {
	for _, k := range known {
		if strings.EqualFold(name, k) {
			return true
		}
	}
	return false
}

// AllTiers returns the tiers, fastest first.
func AllTiers() [Tiers]Tier { return [Tiers]Tier{Device, Host, Disk, Shared} }
