package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/cli"
)

var update = flag.Bool("update", false, "write generated files")

func TestTheReferenceIsFresh(t *testing.T) {
	const name = "../../docs/reference/cli.md"
	want := cli.Reference(command())
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("run go generate ./internal/cli (-want +got)\n%s", diff)
	}
}

// says runs a command line and returns its exit code, its output and its error.
func says(t *testing.T, args ...string) (code int, out, problem string) {
	t.Helper()
	root := command()
	root.SetArgs(args)
	var b, warned bytes.Buffer
	root.SetOut(&b)
	root.SetErr(&warned)
	err := root.Execute()
	if err == nil {
		return 0, b.String(), warned.String()
	}
	return exitCode(err), b.String(), err.Error()
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "routerd.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestF1_WhatNobodyKnowsStopsTheStartWithTwo(t *testing.T) {
	bad := file(t, "router:\n  temprature: 0.5\nrouting:\n  seeed: 1\n")
	code, _, problem := says(t, "serve", "-c", bad)
	if code != exitUsage {
		t.Errorf("exit code %d, want %d", code, exitUsage)
	}
	for _, want := range []string{"routerd.yaml:1:1: router: unknown key", "nearest known one is routing", "routing.seeed: unknown key; the nearest known one is routing.seed"} {
		if !strings.Contains(problem, want) {
			t.Errorf("the error lacks %q:\n%s", want, problem)
		}
	}
	code, _, problem = says(t, "serve", "--frontend.listn", "x")
	if code != exitUsage || !strings.Contains(problem, "--frontend.listn") || !strings.Contains(problem, "nearest known one is --frontend.listen") {
		t.Errorf("unknown flag: exit code %d: %s", code, problem)
	}
	t.Setenv("ROUTERD_FRONTEND__LISTN", "x")
	code, _, problem = says(t, "serve")
	if code != exitUsage || !strings.Contains(problem, "nearest known one is ROUTERD_FRONTEND__LISTEN") {
		t.Errorf("unknown variable: exit code %d: %s", code, problem)
	}
}

// Only the start can tell which policies there are.
func TestAPolicyThatIsNotThereStopsTheStartWithTwo(t *testing.T) {
	for key, text := range map[string]string{
		"routing.default": "routing: {default: nobody}", "routing.rules[0].policy": "routing: {rules: [{model: m, policy: nobody}]}", "models.m.policy": "models: {m: {policy: nobody}}",
	} {
		code, _, problem := says(t, "serve", "-c", file(t, text+"\nfrontend: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\n"), "--data_dir", t.TempDir())
		if code != exitUsage || !strings.Contains(problem, key+`: "nobody" is not allowed; allowed: `) {
			t.Errorf("%s: exit code %d, want %d: %s", key, code, exitUsage, problem)
		}
	}
}

func TestUsageErrorsExitWithTwoAndFailuresWithOne(t *testing.T) {
	for _, c := range []struct {
		want int
		args []string
	}{
		{exitUsage, []string{"nonsense"}},
		{exitUsage, []string{"version", "extra"}},
		{exitUsage, []string{"config", "check", "--nonsense"}},
		{exitUsage, []string{"config", "nonsense"}},
		{exitUsage, []string{"plugin", "pack"}},
		{exitUsage, []string{"plugin", "pack", "x.wasm"}},
		{exitFailed, []string{"plugin", "pack", "--manifest", "/nonexistent", "-o", "/nonexistent", "x.wasm"}},
		{exitFailed, []string{"config", "check", "-c", "/nonexistent"}},
		{0, []string{"version"}},
		{0, []string{"--help"}},
	} {
		if code, _, problem := says(t, c.args...); code != c.want {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.want, problem)
		}
	}
}

func TestConfigPrintShowsTheEffectiveConfigurationAndItsSources(t *testing.T) {
	t.Setenv("ROUTERD_FRONTEND__GRACE", "7s")
	code, out, problem := says(t, "config", "print", "-c", file(t, "frontend: {grace: 5s, retries: 1}\n"), "--log.level", "debug")
	if code != 0 {
		t.Fatal(problem)
	}
	for _, want := range []string{"grace: 7s # ROUTERD_FRONTEND__GRACE", "retries: 1 # routerd.yaml:1:", "level: debug # --log.level"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

func TestConfigCheckWarnsOfWhatIsProbablyNotMeant(t *testing.T) {
	text := "routing: {rules: [{class: gone, policy: default}]}\n"
	code, out, problem := says(t, "config", "check", "-c", file(t, text))
	if code != 0 || out != "" || !strings.HasPrefix(problem, "warning: routing.rules[0].class: ") {
		t.Errorf("got %d, %q, %q", code, out, problem)
	}
	if code, out, problem = says(t, "config", "check", "-c", file(t, "log: {level: debug}\n")); code != 0 || out+problem != "" {
		t.Errorf("of a plain one: got %d, %q, %q", code, out, problem)
	}
}
