package main

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routerd/routerd/host"
)

// asCommand makes the test binary run as routerd.
const asCommand = "TEST_RUN_AS_ROUTERD"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" || host.IsCompileChild(os.Args) {
		main()
	}
	os.Exit(m.Run())
}

// serving starts `routerd serve` as a process of its own and returns it with the
// address of its admin API, its data folder, and the reading end of its log.
func serving(t *testing.T, args ...string) (router *exec.Cmd, admin, dir string, log *os.File) {
	t.Helper()
	log, logged, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	router = exec.CommandContext(ctx, os.Args[0], "serve", "--frontend.listen=127.0.0.1:0", "--admin.listen=127.0.0.1:0", "--data_dir="+dir)
	router.Args = append(router.Args, args...)
	router.Env = append(os.Environ(), asCommand+"=1")
	router.Stderr = logged
	out, err := router.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := router.Start(); err != nil {
		t.Fatal(err)
	}
	_ = logged.Close()
	line, err := bufio.NewReader(out).ReadString('\n')
	_, admin, ok := strings.Cut(strings.TrimSpace(line), "admin=")
	if err != nil || !ok {
		_ = router.Wait()
		t.Fatalf("no ready line but %q, %v", line, err)
	}
	return router, admin, dir, log
}

func TestTheRouterOutlivesTheReaderOfItsLog(t *testing.T) {
	router, admin, dir, log := serving(t)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(dir, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"w1", "w2"} { // each is logged
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, admin+"/v1/workers/"+name,
			strings.NewReader(`{"url":"http://`+name+`.invalid:1","block_size":16}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("put worker %s: %v, %v", name, err, router.Wait())
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusCreated {
			t.Errorf("put worker %s: status %d, %v", name, resp.StatusCode, err)
		}
	}
	if err := router.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := router.Wait(); err != nil {
		t.Errorf("the router ended with %v", err)
	}
}

func TestASignalWhileStartingIsNoFailure(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range []string{"serve", "demo"} {
		args := []string{name, "--frontend.listen=127.0.0.1:0", "--admin.listen=127.0.0.1:0"}
		if name == "serve" {
			args = append(args, "--data_dir="+t.TempDir())
		}
		root := command()
		root.SetArgs(args)
		if err := root.ExecuteContext(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
