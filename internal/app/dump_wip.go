package app

import "io"

// Dump stands here until caches.go has its own; delete this file then.
func (c *caches) Dump(w io.Writer) error { _, err := io.WriteString(w, "{}"); return err }
