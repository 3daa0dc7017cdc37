// Command report turns the figures of a benchmark, lines of JSON as $BENCH_JSON
// takes them, into a page and a plot in FOLDER: of BenchmarkPolicyDecision or of
// BenchmarkIndex.
//
//	report policy|index FIGURES FOLDER
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: report policy|index FIGURES FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintf(os.Stderr, "report: %v\n", err)
		os.Exit(1)
	}
}

func run(what, figures, folder string) error {
	var text string
	var panels []panel
	var err error
	switch what {
	case "policy":
		text, panels, err = policyReport(figures)
	case "index":
		text, panels, err = indexReport(figures)
	default:
		err = fmt.Errorf("report %q: must be policy or index", what)
	}
	if err != nil {
		return err
	}
	page := filepath.Join(folder, what)
	if err := os.WriteFile(page+".md", []byte(text), 0o644); err != nil {
		return err
	}
	return save(panels, page+".svg")
}
