// Package archtest holds the guards of the repository's shape: which package may import which,
// where a third-party library may appear, how packages are named, how deep folders go and how
// long a file may be.
//
// The rules are data: [Layers] is the table of allowed edges, [Libraries] the table of confined
// libraries. A new edge is made by editing a table in the same change and saying why. A package
// without a row in [Layers] is itself a violation, so a new one cannot slip in unplaced; a row
// without a package is fine.
//
// The checks are pure functions over [Package] values, so that their tests can feed them package
// lists that break a rule. Only [List] and [Files] touch the disk. Nothing here starts a goroutine.
package archtest
