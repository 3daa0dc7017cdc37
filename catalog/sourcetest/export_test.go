package sourcetest

// Broken tells how a source breaks the rule with the name.
func Broken(bench func() Bench, name string) error {
	for _, r := range rules() {
		if r.name == name {
			return r.check(bench())
		}
	}
	return nil
}

// Rules lists the rules' names.
func Rules() (names []string) {
	for _, r := range rules() {
		names = append(names, r.name)
	}
	return names
}
