package meter

import (
	"bytes"
	"fmt"
)

// Section ids of core 2.0.
const (
	secCustom    = 0
	secType      = 1
	secImport    = 2
	secFunction  = 3
	secTable     = 4
	secMemory    = 5
	secGlobal    = 6
	secExport    = 7
	secStart     = 8
	secElement   = 9
	secCode      = 10
	secData      = 11
	secDataCount = 12
)

// sectionRank is the place of each section in a module; the data count section stands before the code.
var sectionRank = [secDataCount + 1]int{
	secType: 1, secImport: 2, secFunction: 3, secTable: 4, secMemory: 5, secGlobal: 6, secExport: 7,
	secStart: 8, secElement: 9, secDataCount: 10, secCode: 11, secData: 12,
}

var sectionNames = [secDataCount + 1]string{
	"custom", "type", "import", "function", "table", "memory", "global", "export",
	"start", "element", "code", "data", "data count",
}

// decoder is one pass over the sections.
type decoder struct {
	m         *Module
	lim       *Limits
	customs   int
	rank      int
	dataCount uint32
	codes     int
}

// Decode walks the sections of wasm, extracts what the host judges (manifest, imports, exports), decodes
// every body whole and holds all of it against lim. It allocates no more than a small multiple of
// len(wasm), reads each byte at most twice and never panics. The error is always an *Error.
// The Module keeps wasm.
func Decode(wasm []byte, lim Limits) (*Module, error) {
	if len(wasm) > lim.ModuleBytes {
		return nil, refuse(CodeSize, StepSize, fmt.Sprintf("module of %d bytes", len(wasm)), fmt.Sprintf("at most %d", lim.ModuleBytes))
	}
	d := &decoder{m: &Module{limits: lim, MemoryMax: 65_536}}
	d.lim = &d.m.limits
	r := &reader{b: wasm, step: StepWalk}
	if !bytes.Equal(r.take(8, "header"), []byte("\x00asm\x01\x00\x00\x00")) {
		return nil, refuse(CodeParse, StepWalk, fmt.Sprintf("header %q", wasm[:min(8, len(wasm))]), "a core module of version 1 (no component)")
	}
	for r.err == nil && r.left() > 0 {
		d.section(r)
	}
	d.finish(r)
	if r.err != nil {
		return nil, r.err
	}
	if err := d.m.checkBodies(); err != nil {
		return nil, err
	}
	return d.m, nil
}

// section reads one section: its parser must use up exactly the declared length.
func (d *decoder) section(r *reader) {
	id := r.byte("section id")
	size := r.u32("section length")
	if int(id) >= len(sectionNames) {
		r.malformed(fmt.Sprintf("section %d", id), "the sections of core 2.0")
		return
	}
	s := r.sub(size, sectionNames[id]+" section")
	if r.err != nil {
		return
	}
	if id != secCustom {
		if sectionRank[id] <= d.rank {
			r.malformed(sectionNames[id]+" section out of order or twice", "each section at most once, in the order of the standard")
			return
		}
		d.rank = sectionRank[id]
	}
	d.content(id, &s)
	if s.err == nil && s.left() > 0 {
		s.malformed(fmt.Sprintf("%s section with %d bytes too many", sectionNames[id], s.left()), "a content of the declared length")
	}
	r.err = s.err
}

func (d *decoder) content(id byte, r *reader) {
	switch id {
	case secCustom:
		d.custom(r)
	case secType:
		d.typeSection(r)
	case secImport:
		d.importSection(r)
	case secFunction:
		d.functionSection(r)
	case secTable:
		d.tableSection(r)
	case secMemory:
		d.memorySection(r)
	case secGlobal:
		d.globalSection(r)
	case secExport:
		d.exportSection(r)
	case secStart:
		d.startSection(r)
	case secElement:
		d.elementSection(r)
	case secCode:
		d.codeSection(r)
	case secData:
		d.dataSection(r)
	case secDataCount:
		d.m.hasCount = true
		d.dataCount = r.u32("data count")
	}
}

// finish makes the checks that need all sections.
func (d *decoder) finish(r *reader) {
	if r.err != nil {
		return
	}
	if len(d.m.funcs) != d.codes {
		r.malformed(fmt.Sprintf("%d functions with %d bodies", len(d.m.funcs), d.codes), "one body for each function")
	}
	if d.m.hasCount && uint64(d.dataCount) != uint64(len(d.m.data)) {
		r.malformed(fmt.Sprintf("data count %d with %d data segments", d.dataCount, len(d.m.data)), "equal numbers")
	}
}

// custom counts a custom section, keeps the manifest and reads function names.
func (d *decoder) custom(r *reader) {
	if d.customs++; d.customs > d.lim.CustomSections {
		r.over("custom sections", uint64(d.customs), d.lim.CustomSections)
		return
	}
	name := r.text(r.left(), "custom section name")
	if r.err != nil {
		return
	}
	content := r.take(uint32(r.left()), "custom section")
	switch name {
	case ManifestSection:
		d.manifest(r, content)
	case "name":
		d.m.Names = functionNames(content)
	}
}

func (d *decoder) manifest(r *reader, content []byte) {
	switch {
	case d.m.Manifest != nil:
		r.fail(CodeManifest, "second "+ManifestSection+" section", "exactly one")
	case len(content) > d.lim.ManifestBytes:
		r.fail(CodeManifest, fmt.Sprintf("%s section of %d bytes", ManifestSection, len(content)), fmt.Sprintf("at most %d", d.lim.ManifestBytes))
	default:
		d.m.Manifest = bytes.Clone(content)
		if d.m.Manifest == nil {
			d.m.Manifest = []byte{}
		}
	}
}
