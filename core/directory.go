package core

import (
	"cmp"
	"maps"
	"slices"

	"github.com/routerd/routerd/fleet"
)

// directory is an immutable table of everything that has a name.
type directory struct {
	partitions map[fleet.PartitionKey]*Partition
	workers    map[fleet.WorkerID]workerEntry
	adapters   map[fleet.PartitionKey]fleet.PartitionKey // (adapter, group) → base
	lost       map[adapterOf]bool                        // requests for it go to another base model
}

// adapterOf is an adapter of a base model.
type adapterOf struct {
	base    fleet.PartitionKey
	adapter string
}

type workerEntry struct {
	partition *Partition
	name      string
}

func (d *directory) clone() *directory {
	out := &directory{
		partitions: maps.Clone(d.partitions), workers: maps.Clone(d.workers), adapters: d.adapters, lost: d.lost,
	}
	if out.partitions == nil {
		out.partitions = map[fleet.PartitionKey]*Partition{}
	}
	if out.workers == nil {
		out.workers = map[fleet.WorkerID]workerEntry{}
	}
	return out
}

// checkNames refuses two workers of one name.
func (d *directory) checkNames() error {
	names := make(map[string]fleet.WorkerID, len(d.workers))
	for id, e := range d.workers {
		if other, taken := names[e.name]; taken {
			return &fleet.FieldError{
				Field: "name", Value: e.name,
				Allowed: "a name that no other worker has (ids " + min(id, other).String() + " and " + max(id, other).String() + ")",
			}
		}
		names[e.name] = id
	}
	return nil
}

// ordered are the partitions by key.
func (d *directory) ordered() []*Partition {
	return slices.SortedFunc(maps.Values(d.partitions), func(a, b *Partition) int { return compareKeys(a.key, b.key) })
}

// ResolveModel finds the partition that serves a model name in a group (empty
// for the default one): a base model, or an adapter that a worker lists, which
// is then returned too. ok is false for a name that was never registered or is
// forgotten.
func (c *SelectionCore) ResolveModel(name, group string) (key fleet.PartitionKey, adapter string, ok bool) {
	d := c.directory.Load()
	key = fleet.PartitionKey{Model: name, Group: group}.Normalised()
	if d.partitions[key] != nil {
		return key, "", true
	}
	if base, found := d.adapters[key]; found {
		return base, name, true
	}
	return key, "", false
}

// BlockSize is the number of tokens in a block of a partition; 0 for one that is not
// known.
func (c *SelectionCore) BlockSize(key fleet.PartitionKey) int {
	if p := c.directory.Load().partitions[key.Normalised()]; p != nil {
		return p.blockSize
	}
	return 0
}

// ModelCard is one entry of the list of models.
type ModelCard struct {
	ID string
	// Parent is the base model of an adapter; empty for a base model.
	Parent string
	// Created is when the partition was built, in Unix seconds.
	Created int64
}

// Models lists the base models and adapters of a group (empty for the default
// one) by id. A model that has lost all its workers stays in the list until it is
// forgotten.
func (c *SelectionCore) Models(group string) []ModelCard {
	d := c.directory.Load()
	group = fleet.PartitionKey{Group: group}.Normalised().Group
	cards := []ModelCard{}
	for key, p := range d.partitions {
		if key.Group == group {
			cards = append(cards, ModelCard{ID: key.Model, Created: p.created.Unix()})
		}
	}
	for key, base := range d.adapters {
		if key.Group == group && d.partitions[key] == nil {
			cards = append(cards, ModelCard{ID: key.Model, Parent: base.Model, Created: d.partitions[base].created.Unix()})
		}
	}
	slices.SortFunc(cards, func(a, b ModelCard) int { return cmp.Compare(a.ID, b.ID) })
	return cards
}

func compareKeys(a, b fleet.PartitionKey) int {
	return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Group, b.Group))
}
