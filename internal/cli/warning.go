package cli

import (
	"fmt"
	"io"
)

// warning is what an answer has that was done and is probably not meant. Stage
// or Item, where there is one, is its place.
type warning struct {
	Code    string `json:"code"`
	Stage   string `json:"stage"`
	Item    string `json:"item"`
	Message string `json:"message"`
}

// String is one line.
func (w *warning) String() string {
	place := ""
	for _, at := range []string{w.Stage, w.Item} {
		if at != "" {
			place = " at " + cell(at)
		}
	}
	return fmt.Sprintf("warning %s%s: %s", cell(w.Code), place, cell(w.Message))
}

// printWarnings prints a line for each.
func printWarnings(w io.Writer, warnings []warning) {
	for i := range warnings {
		fmt.Fprintln(w, warnings[i].String())
	}
}
