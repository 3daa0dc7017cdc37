package archtest_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	targetLine = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):[^=]`)
	helpLine   = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):.*## \S`)
	scriptName = regexp.MustCompile(`scripts/[a-z0-9-]+\.sh`)
	testFunc   = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	testName   = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	madeName   = regexp.MustCompile("`make ([a-z][a-z0-9-]*)")
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func submatches(re *regexp.Regexp, text string) []string {
	var all []string
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

func TestEachMakeTargetIsExplained(t *testing.T) {
	text := readFile(t, "Makefile")
	if diff := cmp.Diff(submatches(targetLine, text), submatches(helpLine, text)); diff != "" {
		t.Errorf("targets without a ## line (-target +explained):\n%s", diff)
	}
	for _, name := range scriptName.FindAllString(text, -1) {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		} else if info.Mode()&0o111 == 0 {
			t.Errorf("%s cannot be executed", name)
		}
	}
}

func TestTextsNameOnlyMakeTargetsThatExist(t *testing.T) {
	targets := submatches(targetLine, readFile(t, "Makefile"))
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		for _, target := range submatches(madeName, readFile(t, name)) {
			if !slices.Contains(targets, target) {
				t.Errorf("%s names make %s, which is no target", name, target)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A rule that is said to be pinned by a test is pinned by one that exists.
func TestTheTestsThatPinTheRulesExist(t *testing.T) {
	declared := map[string]bool{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		for _, test := range submatches(testFunc, readFile(t, name)) {
			declared[test] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := submatches(testName, readFile(t, "CONTRIBUTING.md"))
	if len(named) == 0 {
		t.Error("CONTRIBUTING.md names no test")
	}
	for _, test := range named {
		if !declared[test] {
			t.Errorf("CONTRIBUTING.md names %s, which is no test", test)
		}
	}
}

// machine is a folder of commands that stands in for PATH, so that scripts/deps.sh can be run on
// a machine that lacks things.
type machine string

func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine(t.TempDir())
	for _, name := range []string{"bash", "env", "sort", "head", "tr"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(string(m), name)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m machine) command(t *testing.T, name, body string) {
	t.Helper()
	err := os.WriteFile(filepath.Join(string(m), name), []byte("#!/bin/sh\n"+body+"\n"), 0o755)
	if err != nil {
		t.Fatal(err)
	}
}

func (m machine) deps(t *testing.T, want string) (output string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/bash", filepath.Join(root, "scripts/deps.sh"), want)
	cmd.Env = []string{"PATH=" + string(m)}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestDepsSayWhatIsMissing(t *testing.T) {
	cases := []struct {
		name, want string
		setup      func(t *testing.T, m machine)
		output     string
	}{
		{"no Go", "build", func(*testing.T, machine) {}, "needs Go 1.26 or newer; found: none"},
		{"an old Go", "build", func(t *testing.T, m machine) {
			m.command(t, "go", "echo go1.9.7")
		}, "needs Go 1.26 or newer; found: go1.9.7"},
		{"nothing but Go, and not root", "build", func(t *testing.T, m machine) {
			m.command(t, "go", "echo go1.26.8")
			m.command(t, "apt-get", "exit 0")
			m.command(t, "id", "echo 1000")
		}, "sudo apt-get install gcc libc6-dev pkg-config libzmq3-dev"},
		{"no libzmq and no apt-get", "build", func(t *testing.T, m machine) {
			m.command(t, "go", "echo go1.27")
			m.command(t, "gcc", "exit 0")
			m.command(t, "pkg-config", "exit 1")
		}, "missing: libzmq3-dev\n"},
		{"no Python for e2e", "e2e", func(t *testing.T, m machine) {
			m.command(t, "go", "echo go1.26.0")
			m.command(t, "gcc", "exit 0")
			m.command(t, "pkg-config", "exit 0")
		}, "missing: curl python3 python3-venv\n"},
		{"an install that changes nothing", "build", func(t *testing.T, m machine) {
			m.command(t, "go", "echo go1.26.0")
			m.command(t, "gcc", "exit 0")
			m.command(t, "pkg-config", "exit 1")
			m.command(t, "apt-get", "exit 0")
			m.command(t, "id", "echo 0")
		}, "still missing after the install: libzmq3-dev"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			c.setup(t, m)
			output, code := m.deps(t, c.want)
			if code != 1 {
				t.Errorf("exit code = %d, want 1", code)
			}
			if !strings.Contains(output, c.output) {
				t.Errorf("output = %q, want %q in it", output, c.output)
			}
		})
	}
}

func TestDepsInstallAndThenOnlyLook(t *testing.T) {
	m := newMachine(t)
	m.command(t, "go", "echo go1.26.0")
	m.command(t, "gcc", "exit 0")
	m.command(t, "id", "echo 0")
	present := filepath.Join(string(m), "libzmq")
	m.command(t, "pkg-config", "test -e "+present)
	// The first install fails, as on a machine without a package list; an update helps.
	listed := filepath.Join(string(m), "listed")
	m.command(t, "apt-get", `case "$*" in
*update*) : >`+listed+` ;;
*install*libzmq3-dev) test -e `+listed+` && : >`+present+` ;;
esac`)

	output, code := m.deps(t, "build")
	if code != 0 || !strings.Contains(output, "installing: libzmq3-dev") {
		t.Fatalf("exit code = %d, output %q", code, output)
	}
	if output, code = m.deps(t, "build"); code != 0 || output != "" {
		t.Errorf("with everything there: exit code = %d, output %q, want silence", code, output)
	}
}
