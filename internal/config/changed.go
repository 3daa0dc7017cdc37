package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
)

// reloadRestart is the value of the tag reload of keys that a reload cannot
// change.
const reloadRestart = "restart"

// Changed lists the keys whose values differ, by name: those that a reload puts
// in force, and those that only a restart can change. A list counts as one key,
// and so does a policy; a model that is new or gone is named as a whole.
func Changed(was, now Config) (live, restart []string) {
	c := changes{}
	c.between(nil, schema(), reflect.ValueOf(was), reflect.ValueOf(now), "")
	slices.Sort(c.live)
	slices.Sort(c.restart)
	return c.live, c.restart
}

type changes struct{ live, restart []string }

func (c *changes) add(path []string, reload string) {
	if reload == reloadRestart {
		c.restart = append(c.restart, dotted(path))
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
				c.add(below(path, key), reload)
				continue
			}
			c.between(below(path, key), n.element, a, b, reload)
		}
	case list:
		if was.Len()+now.Len() > 0 && !reflect.DeepEqual(was.Interface(), now.Interface()) {
			c.add(path, reload)
		}
	case leaf, opaque:
		if !reflect.DeepEqual(was.Interface(), now.Interface()) {
			c.add(path, reload)
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
