package config

import (
	"slices"

	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/catalog/dns"
	"github.com/routerd/routerd/fleet"
)

// Names tells whether the configuration names the model of a partition: below models, in
// a rule, as that of a managed adapter, or as that of workers of the file or of a name
// server. Where it says a routing group too, that must be the partition's.
func (c *Config) Names(key fleet.PartitionKey) bool {
	if _, ok := c.Models[key.Model]; ok {
		return true
	}
	of := func(r *fleet.Record) bool { return r.Model == key.Model && r.Partition() == key }
	return slices.ContainsFunc(c.Routing.Rules, func(r Rule) bool {
		return r.Model == key.Model && (r.Group == "" || r.Group == key.Group)
	}) || slices.ContainsFunc(c.LoRA.Manage, func(a adapters.Adapter) bool {
		return a.Model == key.Model
	}) || slices.ContainsFunc(c.Workers.Static, func(r fleet.Record) bool {
		return of(&r)
	}) || slices.ContainsFunc(c.Workers.DNS, func(d dns.Config) bool {
		return of(&d.Template)
	})
}
