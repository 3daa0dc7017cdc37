// Command kv-aware is the default policy as a scorer module: where the prompt's
// blocks are, against how much work waits there. README.md has the formula.
package main

import "github.com/routerd/routerd/plugins/sdk/go/scorer"

func main() {} // never called: the module is a library

func init() { scorer.Register(plugin()) }

func plugin() scorer.Plugin {
	return scorer.Plugin{Columns: columns(), Fields: fields(), Score: score, NoAllocs: true}
}
