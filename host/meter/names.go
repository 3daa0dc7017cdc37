package meter

const (
	maxNames     = 4096
	maxNameBytes = 64
)

// functionNames reads the function names of a "name" section. They only help people to read a trace, so
// whatever is malformed ends the reading and refuses nothing.
func functionNames(content []byte) map[uint32]string {
	r := &reader{b: content}
	for r.err == nil && r.left() > 0 {
		id := r.byte("subsection")
		s := r.sub(r.u32("subsection length"), "subsection")
		if id == 1 && r.err == nil {
			return nameMap(&s)
		}
	}
	return nil
}

func nameMap(r *reader) map[uint32]string {
	names := make(map[uint32]string)
	n := r.u32("names")
	for range min(n, maxNames) {
		index := r.u32("index")
		name := r.take(r.u32("name length"), "name")
		if r.err != nil {
			break
		}
		names[index] = printable(name)
	}
	return names
}

// printable cuts a guest's name and replaces whatever is not printable ASCII.
func printable(name []byte) string {
	out := make([]byte, 0, min(len(name), maxNameBytes))
	for _, c := range name[:min(len(name), maxNameBytes)] {
		if c < 0x20 || c > 0x7e {
			c = '?'
		}
		out = append(out, c)
	}
	return string(out)
}
