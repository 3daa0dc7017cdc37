package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/routerd/routerd/core/queue"
	"github.com/routerd/routerd/fleet"
)

// The codes of warnings.
const (
	WarnNoCapacity    = "no_capacity"    // a bound is a part of a number that workers of the file do not have
	WarnUnknownClass  = "unknown_class"  // a rule's class is none of queue.classes
	WarnUnknownModel  = "unknown_model"  // a managed adapter's model is none that the file knows
	WarnOpenSelection = "open_selection" // the selection service can be reached from elsewhere and asks for no token
	WarnUnusedToken   = "unused_token"   // a token is configured for a listener that is off
	WarnOpenIndex     = "open_index"     // the index can be read from elsewhere and asks for no token
	WarnUnusedPrimary = "unused_primary" // a primary is configured whose index is not read
	WarnUnusedIndex   = "unused_index"   // something is configured of an index of a kind that is not there
	WarnFewSlots      = "few_slots"      // a model's managed adapters do not all fit its workers of the file
)

// Warning is a thing of a right configuration that probably does not do what was
// meant. It is told as far as the file goes: workers may come from elsewhere too.
type Warning struct {
	Code    string // one of the above
	Key     string // the key to look at, such as routing.rules[0].class
	Message string
}

// Warnings are what is probably not meant, in the order of the file.
func (c Config) Warnings() []Warning {
	return slices.Concat(c.unknownClasses(), c.boundsWithoutCapacity(), c.adaptersWithoutPlace(), c.openSelection(), c.unusedToken(), c.openIndex(), c.unusedIndex())
}

// unknownClasses warns of rules for classes in which nobody can wait.
func (c Config) unknownClasses() (out []Warning) {
	for i, r := range c.Routing.Rules {
		if _, known := c.Queue.Classes[r.Class]; r.Class == "" || known {
			continue
		}
		out = append(out, Warning{
			WarnUnknownClass, fmt.Sprintf("routing.rules[%d].class", i),
			fmt.Sprintf("class %q is none of queue.classes: requests of this class get the rule's policy, and wait as those of class %q", r.Class, queue.DefaultClass),
		})
	}
	return out
}

// boundsWithoutCapacity warns of bounds that are parts of what the record of a
// worker does not say.
func (c Config) boundsWithoutCapacity() (out []Warning) {
	const batchless = "it counts as 10000000, so that in practice the bound is never passed there"
	noBatch := lacking(c.Workers.Static, func(r *fleet.Record) bool { return r.MaxBatchedTokens == 0 })
	noBlocks := lacking(c.Workers.Static, func(r *fleet.Record) bool { return r.TotalKVBlocks == 0 })
	warn := func(key string, set bool, workers, field, so string) {
		if set && workers != "" {
			out = append(out, Warning{WarnNoCapacity, key, fmt.Sprintf("no %s in the record of %s: where its engine does not tell it either, %s", field, workers, so)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Queue.Classes)) {
		warn("queue.classes."+name+".busy.prefill_fraction", c.Queue.Classes[name].Busy.PrefillFraction > 0, noBatch, "max_batched_tokens", batchless)
	}
	o := &c.Queue.Overload
	warn("queue.overload.prefill_fraction", o.PrefillFraction > 0, noBatch, "max_batched_tokens", batchless)
	warn("queue.overload.kv_fraction", o.KVFraction > 0, noBlocks, "total_kv_blocks", "the bound does not hold there")
	return out
}

// lacking names the workers that lack something; empty for none.
func lacking(workers []fleet.Record, lacks func(*fleet.Record) bool) string {
	const named = 3
	var names []string
	n := 0
	for i := range workers {
		if !lacks(&workers[i]) {
			continue
		}
		if n++; n <= named {
			names = append(names, fmt.Sprintf("%q", workers[i].Name))
		}
	}
	text := strings.Join(names, ", ")
	if n > named {
		text += fmt.Sprintf(" and %d more", n-named)
	}
	return text
}

// adaptersWithoutPlace warns of managed adapters of models that the file does not
// know, and of more than fit.
func (c Config) adaptersWithoutPlace() (out []Warning) {
	workers := map[string]int{}
	for _, w := range c.Workers.Static {
		workers[w.Model]++
	}
	adapters := map[string]int{}
	for i, a := range c.LoRA.Manage {
		if _, named := c.Models[a.Model]; workers[a.Model] == 0 && !named {
			out = append(out, Warning{
				WarnUnknownModel, fmt.Sprintf("lora.manage[%d].model", i),
				fmt.Sprintf("model %q is that of no worker of the file and none of models: adapter %q is loaded nowhere until a worker of it is there", a.Model, a.Name),
			})
		}
		adapters[a.Model]++
	}
	for _, model := range slices.Sorted(maps.Keys(adapters)) {
		if n, room := adapters[model], workers[model]*c.LoRA.Slots; room > 0 && n > room {
			out = append(out, Warning{
				WarnFewSlots, "lora.slots",
				fmt.Sprintf("%d adapters of model %q, and its %d workers of the file hold %d: those that nobody asks for make room, and while all are asked for some are loaded beyond the slots, which the engine may refuse", n, model, workers[model], room),
			})
		}
	}
	return out
}
