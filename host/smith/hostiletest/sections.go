package hostiletest

import (
	"encoding/binary"

	asm "github.com/routerd/routerd/host/wasmtest"
)

// Ids of sections.
const (
	idCustom    = 0
	idType      = 1
	idImport    = 2
	idFunction  = 3
	idTable     = 4
	idMemory    = 5
	idGlobal    = 6
	idExport    = 7
	idStart     = 8
	idElement   = 9
	idCode      = 10
	idData      = 11
	idDataCount = 12
)

const moduleHeader = "\x00asm\x01\x00\x00\x00"

// part is one section of a module.
type part struct {
	id   byte
	body []byte
}

// cutModule takes a well-formed module apart; the bodies are views.
func cutModule(wasm []byte) []part {
	var parts []part
	for b := wasm[len(moduleHeader):]; len(b) > 0; {
		size, n := binary.Uvarint(b[1:])
		parts = append(parts, part{b[0], b[1+n : 1+n+int(size)]})
		b = b[1+n+int(size):]
	}
	return parts
}

// joinModule puts parts together.
func joinModule(parts []part) []byte {
	out := []byte(moduleHeader)
	for _, p := range parts {
		out = append(append(append(out, p.id), asm.Uleb(uint64(len(p.body)))...), p.body...)
	}
	return out
}

// sectionPlace is where a section stands in a module.
func sectionPlace(id byte) int {
	switch id {
	case idCustom:
		return 100
	case idDataCount:
		return 2*idElement + 1
	}
	return 2 * int(id)
}

// changeSection replaces the content of a section; it is made where it is missing, with
// a content of nil.
func changeSection(wasm []byte, id byte, with func(content []byte) []byte) []byte {
	var out []part
	done := false
	for _, p := range cutModule(wasm) {
		if !done && sectionPlace(p.id) > sectionPlace(id) {
			out, done = append(out, part{id, with(nil)}), true
		}
		if !done && p.id == id {
			p, done = part{id, with(p.body)}, true
		}
		out = append(out, p)
	}
	if !done {
		out = append(out, part{id, with(nil)})
	}
	return joinModule(out)
}

// appendEntries appends n equal entries to a section's vector and counts them.
func appendEntries(wasm []byte, id byte, n int, entry ...byte) []byte {
	return changeSection(wasm, id, func(content []byte) []byte {
		count, at := uint64(0), 0
		if len(content) > 0 {
			count, at = binary.Uvarint(content)
		}
		out := append(asm.Uleb(count+uint64(n)), content[at:]...)
		for range n {
			out = append(out, entry...)
		}
		return out
	})
}

// entryCount is how many entries a section's vector has.
func entryCount(wasm []byte, id byte) int {
	for _, p := range cutModule(wasm) {
		if p.id == id {
			n, _ := binary.Uvarint(p.body)
			return int(n)
		}
	}
	return 0
}

// appendFunctions appends n functions of a type with one body: local declarations and
// code with its end.
func appendFunctions(wasm []byte, n int, typeIndex int, body ...byte) []byte {
	wasm = appendEntries(wasm, idFunction, n, asm.Uleb(uint64(typeIndex))...)
	return appendEntries(wasm, idCode, n, append(asm.Uleb(uint64(len(body))), body...)...)
}

// appendVoid appends n functions () -> () with one body.
func appendVoid(wasm []byte, n int, body ...byte) []byte {
	t := entryCount(wasm, idType)
	return appendFunctions(appendEntries(wasm, idType, 1, 0x60, 0, 0), n, t, body...)
}

// appendCustom appends a custom section.
func appendCustom(wasm []byte, name string, content []byte) []byte {
	return joinModule(append(cutModule(wasm), part{idCustom, append(append(asm.Uleb(uint64(len(name))), name...), content...)}))
}

// withName is a name with its length in front.
func withName(s string) []byte { return append(asm.Uleb(uint64(len(s))), s...) }
