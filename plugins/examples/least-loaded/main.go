// Command least-loaded is a scorer module that prefers the candidate with the
// fewest active requests.
package main

import "github.com/routerd/routerd/plugins/sdk/go/scorer"

func main() {} // never called: the module is a library

func init() { scorer.Register(plugin()) }

func plugin() scorer.Plugin {
	return scorer.Plugin{Columns: columns(), Score: score, NoAllocs: true}
}
