// Command gen writes what is made from the ABI's tables: the reference page and
// the Go SDK's constants. Run it by `go generate ./plugins/abi`.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// output is one generated file: its place from the folder plugins/abi, and what
// it must hold.
type output struct {
	path    string
	content func() []byte
}

func outputs() []output {
	return []output{
		{"../../docs/reference/abi.md", reference},
		{"../sdk/go/frame/table_gen.go", goTable},
	}
}

func main() {
	for _, o := range outputs() {
		if err := write(o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func write(o output) error {
	if err := os.MkdirAll(filepath.Dir(o.path), 0o755); err != nil {
		return fmt.Errorf("make folder of %q: %w", o.path, err)
	}
	if err := os.WriteFile(o.path, o.content(), 0o644); err != nil {
		return fmt.Errorf("write %q: %w", o.path, err)
	}
	return nil
}
