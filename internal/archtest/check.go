package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Package is the part of go list's answer that the rules look at.
type Package struct {
	// Path is relative to the module root; the root itself is ".".
	Path string
	// Name is the declared package name.
	Name string
	// Imports are the full import paths of production files, TestImports those of test files of
	// either kind.
	Imports, TestImports []string
}

// Check applies every rule about packages and returns one line per violation, sorted.
// module is the module path, rows and libraries are usually [Layers] and [Libraries].
func Check(module string, pkgs []Package, rows []Row, libraries []Library) []string {
	c := checker{module: module, rows: rows, libraries: libraries}
	var bad []string
	for _, p := range pkgs {
		bad = append(bad, c.names(p)...)
		bad = append(bad, c.edges(p)...)
		bad = append(bad, c.confined(p)...)
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

type checker struct {
	module    string
	rows      []Row
	libraries []Library
}

// names checks the folder names, the package name and the depth.
func (c checker) names(p Package) []string {
	var bad []string
	parts := strings.Split(p.Path, "/")
	for _, part := range append(parts, strings.TrimSuffix(p.Name, "_test")) {
		if refusedNames[part] {
			bad = append(bad, fmt.Sprintf("%s: the name %q says nothing about what it holds", p.Path, part))
		}
	}
	limit := maxDepth
	if within(p.Path, "plugins/sdk") {
		limit = maxSDKDepth
	}
	if len(parts) > limit {
		bad = append(bad, fmt.Sprintf("%s: %d folders deep, at most %d", p.Path, len(parts), limit))
	}
	return bad
}

// edges checks the production imports of p against its row.
func (c checker) edges(p Package) []string {
	row, ok := c.row(p.Path)
	if !ok {
		return []string{fmt.Sprintf("%s: no row in the table of layers; add one and say why", p.Path)}
	}
	var bad []string
	for _, imp := range p.Imports {
		why := c.refuse(row, imp, isSuite(p.Path))
		if c.own(imp) && isSuite(imp) && !isSuite(p.Path) {
			why = "what ends in test is for tests"
		}
		if why != "" {
			bad = append(bad, fmt.Sprintf("%s imports %s: %s", p.Path, c.short(imp), why))
		}
	}
	return bad
}

// refuse says why row may not import imp, or "". A suite keeps to the row's edges inside the
// repository, and is otherwise test code.
func (c checker) refuse(row Row, imp string, suite bool) string {
	if c.own(imp) {
		return c.refuseOwn(row, c.short(imp))
	}
	if suite {
		return ""
	}
	if standard(imp) {
		for _, no := range row.NoStd {
			if within(imp, no) && !harmlessStd[imp] {
				return row.Component + " reaches no network and no files"
			}
		}
		return ""
	}
	if row.ThirdParty != nil && !withinAny(imp, row.ThirdParty) {
		return row.Component + " may use " + list(row.ThirdParty)
	}
	return ""
}

// refuseOwn says why row may not import the package at path of this repository, or "".
func (c checker) refuseOwn(row Row, path string) string {
	if slices.Contains(row.Repo, anyComponent) || withinAny(path, row.Repo) {
		return ""
	}
	target, ok := c.row(path)
	if ok && target.Component == row.Component {
		return ""
	}
	return row.Component + " may import " + list(row.Repo)
}

// confined checks production and test imports against the table of libraries.
func (c checker) confined(p Package) []string {
	var bad []string
	for _, lib := range c.libraries {
		if lib.allows(p.Path) {
			continue
		}
		imports := p.Imports
		if lib.Tests {
			imports = slices.Concat(p.Imports, p.TestImports)
		}
		for _, imp := range imports {
			if within(imp, lib.Prefix) {
				bad = append(bad, fmt.Sprintf("%s imports %s: %s", p.Path, imp, lib.limits()))
			}
		}
	}
	return bad
}

func (l Library) allows(path string) bool {
	if len(l.Only) > 0 {
		return withinAny(path, l.Only)
	}
	return !withinAny(path, l.Except)
}

func (l Library) limits() string {
	if len(l.Only) > 0 {
		return "only in " + list(l.Only) + ": " + l.Why
	}
	return "never in " + list(l.Except) + ": " + l.Why
}

// row finds the row with the longest component that holds path.
func (c checker) row(path string) (Row, bool) {
	var best Row
	for _, r := range c.rows {
		if within(path, r.Component) && len(r.Component) > len(best.Component) {
			best = r
		}
	}
	return best, best.Component != ""
}

func (c checker) own(imp string) bool {
	return within(imp, c.module)
}

func (c checker) short(imp string) string {
	return strings.TrimPrefix(imp, c.module+"/")
}

// within reports whether path is the folder or below it.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

func withinAny(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return within(path, f) })
}

// isSuite reports whether path is a conformance suite or a set of fakes, as indexer/indextest is:
// test code that stands in production files, so that several packages' tests can use it.
func isSuite(path string) bool {
	last := path[strings.LastIndexByte(path, '/')+1:]
	return strings.HasSuffix(last, "test")
}

// standard reports whether imp belongs to the standard library: its first element has no dot.
func standard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

func list(items []string) string {
	if len(items) == 0 {
		return "nothing of that kind"
	}
	return strings.Join(items, ", ")
}
