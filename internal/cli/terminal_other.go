//go:build !unix

package cli

import "io"

// terminalWidth is not known here.
func terminalWidth(io.Writer) int { return 0 }
