package durable

import "sync/atomic"

// onStep is a package variable, against the rule: only so can a test stop a
// process between two steps of writes that are deep in other packages.
var onStep atomic.Pointer[func(step string)]

// OnStep has f called after each step of each write in this process: "create",
// "write", "sync", "rename", "remove", "sync folder". It is for
// tests that end the process at each of them. A nil f ends it.
func OnStep(f func(step string)) {
	if f == nil {
		onStep.Store(nil)
		return
	}
	onStep.Store(&f)
}

func step(name string) {
	if f := onStep.Load(); f != nil {
		(*f)(name)
	}
}
