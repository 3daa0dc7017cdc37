// Command report turns the figures of a benchmark, lines of JSON as $BENCH_JSON
// takes them, into a page in FOLDER, and a plot where there is something to plot:
// of BenchmarkPolicyDecision, of BenchmarkIndex or of BenchmarkIngest.
//
//	report policy|index|ingest FIGURES FOLDER
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: report policy|index|ingest FIGURES FOLDER")
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
	case "ingest":
		text, err = ingestReport(figures)
	default:
		err = fmt.Errorf("report %q: must be policy, index or ingest", what)
	}
	if err != nil {
		return err
	}
	page := filepath.Join(folder, what)
	if err := os.WriteFile(page+".md", []byte(text), 0o644); err != nil {
		return err
	}
	if len(panels) == 0 {
		return nil
	}
	return save(panels, page+".svg")
}
