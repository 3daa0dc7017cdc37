package archtest_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/archtest"
)

const module = "example.org/m"

func pkg(path string, imports ...string) archtest.Package {
	name := path[strings.LastIndexByte(path, '/')+1:]
	for i, imp := range imports {
		if own, ok := strings.CutPrefix(imp, "./"); ok {
			imports[i] = module + "/" + own
		}
	}
	return archtest.Package{Path: path, Name: name, Imports: imports}
}

func testsOf(p archtest.Package) archtest.Package {
	p.TestImports, p.Imports = p.Imports, nil
	return p
}

func TestEachRuleBites(t *testing.T) {
	const pureList = "github.com/zeebo/xxh3, golang.org/x/sync"
	cases := []struct {
		name string
		pkg  archtest.Package
		want []string
	}{
		{
			"core never meets indexer",
			pkg("core", "./indexer"),
			[]string{"core imports indexer: core may import core/policy, core/queue, core/load, core/affinity, core/reserve, core/lora, fleet, kvcache, plugins/abi"},
		},
		{
			"indexer never meets core",
			pkg("indexer/exact", "./core/load"),
			[]string{"indexer/exact imports core/load: indexer may import fleet, kvcache, internal/cursor"},
		},
		{
			"parts of core do not import each other",
			pkg("core/queue", "./core/load"),
			[]string{"core/queue imports core/load: core/queue may import fleet, kvcache, plugins/abi"},
		},
		{
			"surfaces do not import each other",
			pkg("frontend", "./admin"),
			[]string{"frontend imports admin: frontend may import core, prompt, upstream, clientwatch, internal/jsonscan, fleet, kvcache, plugins/abi"},
		},
		{
			"adapters do not import surfaces",
			pkg("upstream", "./frontend"),
			[]string{"upstream imports frontend: upstream may import fleet"},
		},
		{
			"vocabulary imports nothing of ours",
			pkg("fleet", "./kvcache"),
			[]string{"fleet imports kvcache: fleet may import nothing of that kind"},
		},
		{
			"vocabulary takes the hash and no other library",
			pkg("kvcache", "github.com/zeebo/xxh3", "golang.org/x/sync/errgroup"),
			[]string{"kvcache imports golang.org/x/sync/errgroup: kvcache may use github.com/zeebo/xxh3"},
		},
		{
			"the contract with guests needs the standard library alone",
			pkg("plugins/abi", "github.com/zeebo/xxh3"),
			[]string{"plugins/abi imports github.com/zeebo/xxh3: plugins/abi may use nothing of that kind"},
		},
		{
			"core takes no library that is not listed",
			pkg("core/policy", "github.com/goccy/go-yaml"),
			[]string{"core/policy imports github.com/goccy/go-yaml: core/policy may use " + pureList},
		},
		{
			"core reaches no network and no files",
			pkg("core", "net/http", "os"),
			[]string{
				"core imports net/http: core reaches no network and no files",
				"core imports net/http: only in catalog, host, cmd, internal/app, internal/cli, internal/demo, bench, test/e2e: it is for probing, OCI and the command line; the data path has its own",
				"core imports os: core reaches no network and no files",
			},
		},
		{
			"simulated engines share no code with the index",
			pkg("sim", "./kvcache"),
			[]string{"sim imports kvcache: sim may import nothing of that kind"},
		},
		{
			"suites are for tests",
			pkg("indexer/exact", "./indexer/indextest"),
			[]string{"indexer/exact imports indexer/indextest: what ends in test is for tests"},
		},
		{
			"a suite keeps to its layer",
			pkg("indexer/indextest", "./core"),
			[]string{"indexer/indextest imports core: indexer may import fleet, kvcache, internal/cursor"},
		},
		{
			"keys stay in config",
			pkg("frontend", "github.com/knadh/koanf/v2"),
			[]string{"frontend imports github.com/knadh/koanf/v2: only in internal/config: nobody else sees keys"},
		},
		{
			"wiring stays in app",
			pkg("cmd/routerd", "go.uber.org/fx"),
			[]string{"cmd/routerd imports go.uber.org/fx: only in internal/app: domain code does not know how it is wired"},
		},
		{
			"the Wasm engine stays in host, in tests too",
			testsOf(pkg("core/policy", "github.com/tetratelabs/wazero")),
			[]string{"core/policy imports github.com/tetratelabs/wazero: only in host: only the host knows the engine"},
		},
		{
			"sockets stay in their adapter",
			pkg("ingress/wire", "github.com/pebbe/zmq4"),
			[]string{"ingress/wire imports github.com/pebbe/zmq4: only in ingress/zmq, sim, bench, test/e2e: it needs cgo, and one goroutine owns one socket"},
		},
		{
			"metrics stay above core",
			pkg("indexer/remote", "github.com/prometheus/client_golang/prometheus"),
			[]string{"indexer/remote imports github.com/prometheus/client_golang/prometheus: never in core, indexer, fleet, kvcache, plugins: they count; who wires them publishes"},
		},
		{
			"a package says what it holds",
			pkg("frontend/utils"),
			[]string{`frontend/utils: the name "utils" says nothing about what it holds`},
		},
		{
			"a renamed package is seen through",
			archtest.Package{Path: "host/meter", Name: "helpers"},
			[]string{`host/meter: the name "helpers" says nothing about what it holds`},
		},
		{
			"folders stay shallow",
			pkg("host/store/disk/atomic"),
			[]string{"host/store/disk/atomic: 4 folders deep, at most 3"},
		},
		{
			"a new package needs a row",
			pkg("telepathy"),
			[]string{"telepathy: no row in the table of layers; add one and say why"},
		},
		{
			"no package at the root",
			archtest.Package{Path: ".", Name: "routerd"},
			[]string{".: no row in the table of layers; add one and say why"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := archtest.Check(module, []archtest.Package{c.pkg}, archtest.Layers, archtest.Libraries)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatTheDesignAllowsPasses(t *testing.T) {
	pkgs := []archtest.Package{
		pkg("admin", "github.com/valyala/fasthttp", "./host/store", "./core", "log/slog"),
		pkg("core", "./core/policy", "./fleet", "time", "sync/atomic"),
		pkg("core/policy/policytest", "./core/policy", "testing", "os", "github.com/google/go-cmp/cmp"),
		pkg("indexer/exact", "./indexer", "./kvcache", "github.com/zeebo/xxh3"),
		pkg("indexer/remote", "./indexer", "net"),
		pkg("ingress/zmq", "./ingress/wire", "github.com/pebbe/zmq4", "github.com/prometheus/client_golang/prometheus"),
		pkg("host", "./core/policy", "./host/meter", "github.com/tetratelabs/wazero/api"),
		pkg("internal/app", "go.uber.org/fx", "./frontend", "./sim", "./internal/config"),
		pkg("plugins/sdk/go/scorer", "./plugins/abi", "unsafe"),
		// A native twin is compared in a test: tests may cross layers, not library bounds.
		testsOf(pkg("plugins/examples/kv-aware", "./core/policy", "net/http", "os")),
		// Same beginning, another library.
		pkg("frontend", "go.uber.org/fxless"),
	}
	if got := archtest.Check(module, pkgs, archtest.Layers, archtest.Libraries); len(got) != 0 {
		t.Errorf("refused: %s", strings.Join(got, "\n"))
	}
}

func TestLongFilesAreFound(t *testing.T) {
	lines := func(head string, n int) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(head + "\npackage x\n" + strings.Repeat("// more\n", n-2))}
	}
	tree := fstest.MapFS{
		"a/exact.go":          lines("// one", 500),
		"a/long.go":           lines("// one", 501),
		"a/exact_test.go":     lines("// one", 800),
		"a/long_test.go":      lines("// one", 801),
		"a/table_gen.go":      lines("// Code generated by x. DO NOT EDIT.", 900),
		"a/pretends.go":       {Data: []byte("package x\n// Code generated by x. DO NOT EDIT.\n" + strings.Repeat("\n", 600))},
		"a/testdata/large.go": lines("// one", 900),
		"a/notes.md":          lines("one", 900),
		".cache/large.go":     lines("// one", 900),
		"bin/large.go":        lines("// one", 900),
		"dist/large.go":       lines("// one", 900),
	}
	got, err := archtest.Files(tree)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a/long.go: 501 lines, at most 500",
		"a/long_test.go: 801 lines, at most 800",
		"a/pretends.go: 602 lines, at most 500",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("long files (-want +got):\n%s", diff)
	}
}
