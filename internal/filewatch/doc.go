// Package filewatch tells of files whose contents have changed.
//
// What the operating system says of a change is only a hint, which may be lost,
// late, or about nothing: what counts is a hash of the contents, which is
// compared after a hint and periodically. A change is told when two looks, a
// debounce apart, see the same, so that a file that is being written is left
// alone. A file that cannot be read, has vanished or is empty counts as it was
// when it could be read last.
//
// The folders of the files are watched, not the files, and with them those of all
// symbolic links on the way: a file that an editor renames over the old one is
// seen, and so is a ConfigMap whose link ..data a kubelet switches.
//
// Invariants: at most one look a debounce, however many hints come; the function
// that is told runs in Run, so never twice at once. New starts no goroutine; Run
// owns the one that reads the system's hints, and ends it.
//
//	w := filewatch.New([]string{"routerd.yaml"}, filewatch.Options{Known: filewatch.Look("routerd.yaml")})
//	err := w.Run(ctx, func() { reload() })
package filewatch
