package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// reloadRestart is the value of the tag reload of keys that a reload cannot
// change.
const reloadRestart = "restart"

// Fixed is a key that only a restart can change, with its values as a file has them.
type Fixed struct{ Key, Was, Now string }

// Changed lists the keys whose values differ, by name: those that a reload puts
// in force, and those that only a restart can change. A list counts as one key,
// and so does a policy; a model that is new or gone is named as a whole.
func Changed(was, now Config) (live []string, fixed []Fixed) {
	c := changes{}
	c.between(nil, schema(), reflect.ValueOf(was), reflect.ValueOf(now), "")
	slices.Sort(c.live)
	slices.SortFunc(c.fixed, func(a, b Fixed) int { return strings.Compare(a.Key, b.Key) })
	return c.live, c.fixed
}

type changes struct {
	live  []string
	fixed []Fixed
}

func (c *changes) add(path []string, n *node, was, now reflect.Value, reload string) {
	if reload == reloadRestart {
		c.fixed = append(c.fixed, Fixed{dotted(path), inFile(n, was), inFile(n, now)})
		return
	}
	c.live = append(c.live, dotted(path))
}

func (c *changes) between(path []string, n *node, was, now reflect.Value, reload string) {
	reload = cmp.Or(n.tag.Get("reload"), reload)
	switch n.kind {
	case section:
		for i, key := range n.order {
			c.between(below(path, key), n.children[key], was.Field(i), now.Field(i), reload)
		}
	case freeMap:
		for _, key := range keysOf(was, now) {
			k := reflect.ValueOf(key)
			a, b := was.MapIndex(k), now.MapIndex(k)
			if !a.IsValid() || !b.IsValid() {
				c.add(below(path, key), n.element, a, b, reload)
				continue
			}
			c.between(below(path, key), n.element, a, b, reload)
		}
	case list:
		if was.Len()+now.Len() > 0 && !reflect.DeepEqual(was.Interface(), now.Interface()) {
			c.add(path, n, was, now, reload)
		}
	case leaf, opaque:
		if !reflect.DeepEqual(was.Interface(), now.Interface()) {
			c.add(path, n, was, now, reload)
		}
	}
}

// keysOf are the keys of two maps whose keys are text.
func keysOf(a, b reflect.Value) []string {
	all := map[string]bool{}
	for _, m := range []reflect.Value{a, b} {
		for _, k := range m.MapKeys() {
			all[k.String()] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
