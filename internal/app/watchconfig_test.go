package app_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
	"github.com/routerd/routerd/internal/testkit"
)

// followed is a router that watches its configuration file.
type followed struct {
	*reloadable
	t    *testing.T
	file string
	base string // text of every configuration
}

// startFollowed starts a router on a file with a text; reading is called at every
// reload and may be nil. The test runs beside others: it waits most of the time.
func startFollowed(t *testing.T, text string, reading func()) *followed {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	f := &followed{
		reloadable: &reloadable{log: &testkit.Log{}}, t: t, file: filepath.Join(dir, "routerd.yaml"),
		base: fmt.Sprintf("data_dir: %q\nadmin: {listen: '127.0.0.1:0', token_file: %q}\n", filepath.Join(dir, "data"), filepath.Join(dir, "token")),
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("the-first-token-of-the-operator"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.write(text)
	load := func() (config.Config, error) {
		if reading != nil {
			reading()
		}
		loaded, err := config.Load(config.Input{File: f.file})
		if err != nil {
			return config.Config{}, err
		}
		return loaded.Config, nil
	}
	watching := app.Watching(f.file)
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	log := app.NewLog(cfg.Log, f.log)
	if f.App, err = app.Start(t.Context(), cfg, log.Logger, app.Reloading(load, log), watching); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := f.Stop(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the router's log:\n%s", f.log)
		}
	})
	return f
}

// front is a configuration whose frontend has further settings.
func front(settings string) string {
	return "frontend: {listen: '127.0.0.1:0'" + settings + "}\n"
}

// write puts another text in the file's place, as editors do.
func (f *followed) write(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.file+".new", []byte(f.base+text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.file+".new", f.file); err != nil {
		f.t.Fatal(err)
	}
}

// reloads counts the reloads that a changed file triggered.
func (f *followed) reloads(result string) float64 {
	f.t.Helper()
	return metric(f.t, f.reloadable, fmt.Sprintf("routerd_config_reloads_total{result=%q,trigger=\"file\"}", result))
}

// wrote waits until one more reload has ended with a result.
func (f *followed) wrote(text, result string) {
	f.t.Helper()
	n := f.reloads(result) + 1
	f.write(text)
	testkit.Until(f.t, "a reload is "+result, func() bool { return f.reloads(result) >= n })
}

// tooLong tells whether a body of 2 KiB is too long.
func (f *followed) tooLong() bool {
	f.t.Helper()
	status, _ := f.ask(f.t, strings.Repeat("m", 2<<10))
	return status == http.StatusRequestEntityTooLarge
}

func TestAChangedFileIsPutInForce(t *testing.T) {
	f := startFollowed(t, front(""), nil)
	if f.tooLong() {
		t.Fatal("too long before the change")
	}
	f.wrote(front(", max_body: 1KiB"), "ok")
	if !f.tooLong() {
		t.Error("the new bound is not in force")
	}
	for _, want := range []string{"configuration reloaded", "by=file", "frontend.max_body"} {
		if !strings.Contains(f.log.String(), want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	if err := os.WriteFile(f.file, []byte(f.base+front(", max_body: 1MiB")), 0o600); err != nil { // in its place
		t.Fatal(err)
	}
	testkit.Until(t, "the bound is lifted", func() bool { return !f.tooLong() })
}

func TestO7_AFileThatIsNotRightIsRefusedAsAWholeAndTheNextGoodOneTaken(t *testing.T) {
	f := startFollowed(t, front(""), nil)
	const shorter = ", max_body: 1KiB"
	for n, c := range []struct{ name, text, step, says string }{
		{"an unknown key", front(shorter + ", grce: 5s"), "check", "frontend.grce: unknown key; the nearest known one is frontend.grace"},
		{"a value out of range", front(shorter + ", retries: 11"), "check", "frontend.retries: \\\"11\\\" is not allowed; allowed: "},
		{"no YAML", front(shorter) + "workers: [\n", "read", "routerd.yaml: YAML: "},
		{"half of the file", front(shorter) + "workers: {static: [{name: w1, ur", "read", "routerd.yaml: YAML: "},
		{
			"a module that does not exist", front(shorter) + "policies: {fast: {scorers: [{use: 'module:nowhere'}]}}\n",
			"prepare", "policies.fast: ",
		},
		{"what needs a restart", front(shorter) + "affinity: {ttl: 1h}\n", "restart", "affinity.ttl: "},
	} {
		before := f.log.Count("the old one stays in force")
		f.wrote(c.text, "refused")
		if got := f.reloads("refused"); got != float64(n+1) {
			t.Errorf("%s: %v refused reloads, want %d", c.name, got, n+1)
		}
		if f.tooLong() {
			t.Errorf("%s: a part of the file is in force", c.name)
		}
		if f.log.Count("the old one stays in force") != before+1 || !strings.Contains(f.log.String(), c.says) {
			t.Errorf("%s: the log lacks %s", c.name, c.says)
		}
		if got := metric(t, f.reloadable, "routerd_config_refused"); got != 1 {
			t.Errorf("%s: routerd_config_refused is %v", c.name, got)
		}
		if a := f.reload(t); a.status < http.StatusBadRequest || a.Error.Details.Step != c.step {
			t.Errorf("%s: the API's reload says %+v", c.name, a)
		}
	}
	f.wrote(front(shorter), "ok")
	if !f.tooLong() || metric(t, f.reloadable, "routerd_config_refused") != 0 {
		t.Error("the good file is not in force")
	}
}

func TestAnEmptyOrMissingFileLeavesTheConfigurationAsItIs(t *testing.T) {
	f := startFollowed(t, front(", max_body: 1KiB"), nil)
	if err := os.Truncate(f.file, 0); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the log tells of it", func() bool { return f.log.Count("watched file cannot be read") == 1 })
	if err := os.Remove(f.file); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the log tells of that too", func() bool { return f.log.Count("watched file cannot be read") == 2 })
	if !f.tooLong() || f.reloads("ok")+f.reloads("refused") != 0 {
		t.Error("the configuration is another one")
	}
	f.wrote(front(""), "ok")
	if f.tooLong() {
		t.Error("the file that is back is not in force")
	}
}

func TestATokenFileThatChangesIsReadAgainByItself(t *testing.T) {
	f := startFollowed(t, front(""), nil)
	old := f.Token()
	dir := filepath.Dir(f.file)
	rotate := func(name, token string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rotate("token", "the-second-token-of-the-operator")
	testkit.Until(t, "the new token is in force", func() bool {
		status, _ := f.call(t, http.MethodGet, "/v1/workers", "the-second-token-of-the-operator", nil)
		return status == http.StatusOK
	})
	if status, _ := f.call(t, http.MethodGet, "/v1/workers", old, nil); status != http.StatusUnauthorized {
		t.Errorf("the old token got %d", status)
	}
	// The file names another one, which is watched from then on.
	rotate("other", "the-third-token-of-the-operator")
	f.base = strings.Replace(f.base, filepath.Join(dir, "token"), filepath.Join(dir, "other"), 1)
	f.write(front(""))
	testkit.Until(t, "the other file's token is in force", func() bool { return f.Token() == "the-third-token-of-the-operator" })
	rotate("other", "the-fourth-token-of-the-operator")
	testkit.Until(t, "its next token is in force", func() bool { return f.Token() == "the-fourth-token-of-the-operator" })
	// What names a token file that is not there is refused; the old one is watched on.
	f.base = strings.Replace(f.base, filepath.Join(dir, "other"), filepath.Join(dir, "none"), 1)
	f.wrote(front(""), "refused")
	rotate("other", "the-fifth-token-of-the-operator")
	testkit.Until(t, "the reload that this brings is refused too", func() bool { return f.reloads("refused") == 2 })
	if text := f.log.String(); strings.Contains(text, "token-of-the-operator") {
		t.Error("the log has a token")
	}
}

func TestReloadsOfTheWatchAndOfTheAPIRunOneAfterAnother(t *testing.T) {
	var reading, most, reads atomic.Int64
	f := startFollowed(t, front(""), func() {
		n := reading.Add(1)
		defer reading.Add(-1)
		most.Store(max(most.Load(), n))
		reads.Add(1)
		<-time.After(20 * time.Millisecond)
	})
	for n := range 10 {
		f.write(front(fmt.Sprintf(", grace: %ds", n+1)))
		if a := f.reload(t); a.status != http.StatusOK {
			t.Fatalf("reload: %+v", a)
		}
		<-time.After(50 * time.Millisecond)
	}
	f.wrote(front(", grace: 20s"), "ok")
	if most.Load() != 1 {
		t.Errorf("%d reloads read at once", most.Load())
	}
	if n := reads.Load(); n > 22 {
		t.Errorf("11 changes and 10 calls were read %d times", n)
	}
}

// What a reload by API has read, the watch does not read again, unless the machine
// is so busy that the watch was faster.
func TestAChangeThatTheAPIHasReadIsNoneForTheWatch(t *testing.T) {
	f := startFollowed(t, front(""), nil)
	for n := range 10 {
		f.write(front(fmt.Sprintf(", grace: %ds", n+1)))
		before := f.reloads("ok")
		a := f.reload(t)
		if a.status != http.StatusOK {
			t.Fatalf("reload: %+v", a)
		}
		<-time.After(500 * time.Millisecond)
		if slices.Contains(a.Changed, "frontend.grace") && f.reloads("ok") == before {
			return
		}
	}
	t.Error("in no round did the API alone read the change")
}

// A pipe gives its text once: nobody but the start reads it.
func TestAConfigurationFromAPipeIsNotWatched(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var log testkit.Log
	cfg := settings(t)
	own := app.NewLog(cfg.Log, &log)
	a, err := app.Start(t.Context(), cfg, own.Logger, app.Watching(pipe), app.Watching(""))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Stop(t.Context()); err != nil || log.Count("watched file") > 0 {
		t.Errorf("%v, log:\n%s", err, &log)
	}
}
