package sdk_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/plugins/abi"
)

// The scorer of the guide builds from the guide's text: policy.go as it stands,
// the rest as changes of least-loaded's files.
func TestTheGuidesScorerBuilds(t *testing.T) {
	text, err := os.ReadFile("../../../docs/guide/write-a-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language, first string) string {
		t.Helper()
		for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], first) {
				return m[1]
			}
		}
		t.Fatalf("the guide has no %s block that begins with %q", language, first)
		return ""
	}
	const example = "../../examples/least-loaded/"
	main, err := os.ReadFile(example + "main.go")
	if err != nil {
		t.Fatal(err)
	}
	before, _, ok := strings.Cut(string(main), "func plugin()")
	if !ok {
		t.Fatal("least-loaded's main.go has no func plugin()")
	}
	dir, err := filepath.Abs("../../examples/zone-first")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for name, code := range map[string]string{
		"policy.go":      block("go", "package main\n"),
		"main.go":        before + block("go", "func plugin()"),
		"policy_test.go": "package main\n\nimport (\n\"github.com/routerd/routerd/plugins/sdk/go/scorer\"\n\"github.com/routerd/routerd/plugins/sdk/go/scorertest\"\n)\n" + block("go", "func batch()") + "\nvar _ = batch\n",
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(dir, name)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	guestGo(t, "build", "-overlay", path, "-buildmode=c-shared", "-o", filepath.Join(t.TempDir(), "zone-first.wasm"), "../../examples/zone-first")
	tests := exec.CommandContext(t.Context(), "go", "test", "-overlay", path, "-c", "-vet=off", "-o", filepath.Join(t.TempDir(), "test"), "../../examples/zone-first")
	if out, err := tests.CombinedOutput(); err != nil {
		t.Errorf("build the tests: %v\n%s", err, out)
	}

	m, err := abi.ParseManifest([]byte(block("json", "{\n  \"abi\"")))
	if err != nil {
		t.Fatal(err)
	}
	got := append([]string{}, m.RequestFields...)
	for _, c := range m.Columns {
		got = append(got, c.Name)
	}
	if diff := cmp.Diff([]string{"config.bonus", "label.zone", "load.active_requests"}, got); diff != "" {
		t.Error(diff)
	}
}
