package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/routerd/routerd/internal/app"
	"github.com/routerd/routerd/internal/config"
)

// serviceKeys are the live keys of the selection service.
func serviceKeys() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"selection.token_file": testServiceToken,
		"selection.max_body":   testServiceMaxBody,
		"selection.half_close": testServiceHalfClose,
	}
}

// withService is a configuration with the selection service on.
func withService(t *testing.T) config.Config {
	t.Helper()
	cfg := settings(t)
	cfg.Selection.Listen = "127.0.0.1:0"
	return cfg
}

// askService makes a call of the selection service and returns the status.
func askService(t *testing.T, a *app.App, method, path, token, body string) int {
	t.Helper()
	status, _ := callService(t, a, method, path, token, body)
	return status
}

// callService makes a call of the selection service, over TCP or its socket.
func callService(t *testing.T, a *app.App, method, path, token, body string) (status int, text string) {
	t.Helper()
	client, url := http.DefaultClient, a.SelectionAddress()
	if socket, ok := config.SocketPath(url); ok {
		client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
		url = "http://socket"
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func tokenIn(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func testServiceToken(t *testing.T) {
	r := startReloadable(t, withService(t))
	before := askService(t, r.App, http.MethodGet, "/workers", "", "")
	file := tokenIn(t, "token-of-the-data-plane\n")
	r.change(t, func(c *config.Config) { c.Selection.TokenFile = file }, "selection.token_file")
	after := askService(t, r.App, http.MethodGet, "/workers", "", "")
	statuses(t, [2]int{http.StatusOK, http.StatusUnauthorized}, before, after)
	if got := askService(t, r.App, http.MethodGet, "/workers", "token-of-the-data-plane", ""); got != http.StatusOK {
		t.Errorf("with the token: %d", got)
	}
}

func testServiceMaxBody(t *testing.T) {
	r := startReloadable(t, withService(t))
	long := `{"model_name":"` + strings.Repeat("m", 2<<10) + `","token_ids":[1]}`
	before := askService(t, r.App, http.MethodPost, "/select", "", long)
	r.change(t, func(c *config.Config) { c.Selection.MaxBody = 1 << 10 }, "selection.max_body")
	after := askService(t, r.App, http.MethodPost, "/select", "", long)
	if before == http.StatusRequestEntityTooLarge || after != http.StatusRequestEntityTooLarge {
		t.Errorf("before %d, after %d", before, after)
	}
}

// A token file that is missing, empty or holds no token stops the start and
// refuses a reload; the old token stays in force.
func TestAServiceTokenThatCannotBeReadIsRefused(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "tokne")
	for name, file := range map[string]string{"missing": missing, "empty": tokenIn(t, " \n"), "too short": tokenIn(t, "short"), "with blanks": tokenIn(t, "a token with blanks in it")} {
		cfg := withService(t)
		cfg.Selection.TokenFile = file
		if _, err := app.Start(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "selection.token_file") {
			t.Errorf("%s: the start gave %v", name, err)
		}
	}
	cfg := withService(t)
	cfg.Selection.TokenFile = tokenIn(t, "token-of-the-data-plane")
	r := startReloadable(t, cfg)
	r.set(func(c *config.Config) { c.Selection.TokenFile = missing })
	if err := r.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "selection.token_file") {
		t.Errorf("the reload gave %v", err)
	}
	if got := askService(t, r.App, http.MethodGet, "/workers", "token-of-the-data-plane", ""); got != http.StatusOK {
		t.Errorf("with the old token: %d", got)
	}
}

func TestTheServiceIsOffWithoutAnAddress(t *testing.T) {
	a := start(t, settings(t))
	defer func() { _ = a.Stop(t.Context()) }()
	if got := a.SelectionAddress(); got != "" {
		t.Errorf("got %q", got)
	}
}

// busySocket has one start at a socket whose owner does not come to accept anybody.
func busySocket(t *testing.T, cfg config.Config) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "busy.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", path) // it waits, and is all that may
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cfg.Selection.Listen = "unix:" + path
	if _, err := app.Start(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--selection.listen") {
		t.Errorf("busy: got %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket of somebody else is gone: %v", err)
	}
}

// A socket that nobody listens at is left over and replaced; one that somebody
// uses, and a file that is no socket, are not touched.
func TestTheServiceListensOnAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	cfg := withService(t)
	cfg.Selection.Listen = "unix:" + path
	left, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	a := start(t, cfg)
	if got := askService(t, a, http.MethodGet, "/health", "", ""); got != http.StatusOK {
		t.Errorf("status %d", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", info, err)
	}
	other := withService(t)
	other.Selection.Listen = cfg.Selection.Listen
	busySocket(t, other)
	if _, err := app.Start(t.Context(), other, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--selection.listen") {
		t.Errorf("in use: got %v", err)
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("after the stop: %v", err)
	}
	if err := os.WriteFile(path, []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := app.Start(t.Context(), other, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--selection.listen") {
		t.Errorf("a file: got %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "a file" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

// A caller that shuts its sending side while it waits has gone, or waits on for its
// answer: which of both is the half_close that its connection was accepted under.
func testServiceHalfClose(t *testing.T) {
	cfg := withService(t)
	class := config.DefaultQueueClass()
	class.Busy.ActiveRequests = 1
	cfg.Queue.Classes = map[string]config.QueueClass{"default": class}
	r := startReloadable(t, cfg)
	put := `{"worker_id":1,"model_name":"m","endpoint":"http://127.0.0.1:9","block_size":16,"kv_events_endpoint":"tcp://127.0.0.1:9"}`
	if got := askService(t, r.App, http.MethodPost, "/workers", "", put); got != http.StatusCreated {
		t.Fatalf("put the worker: %d", got)
	}
	status := func(answer string) string { return strings.TrimPrefix(strings.Split(answer, "\r\n")[0], "HTTP/1.1 ") }
	if got := status(r.waitHalfClosed(t, true)); !strings.HasPrefix(got, "499") {
		t.Errorf("under abort the answer is %q", got)
	}
	r.change(t, func(c *config.Config) { c.Selection.HalfClose = "ignore" }, "selection.half_close")
	if got := status(r.waitHalfClosed(t, false)); got != "200 OK" {
		t.Errorf("under ignore the answer is %q", got)
	}
}

// waitHalfClosed books the worker's one place, has a caller that has shut its sending
// side wait for it, frees it once that one waits or has gone, and returns all that the
// caller got.
func (r *reloadable) waitHalfClosed(t *testing.T, gone bool) string {
	t.Helper()
	if got := askService(t, r.App, http.MethodPost, "/select_and_reserve", "", `{"selection_id":"first","model_name":"m","token_ids":[1]}`); got != http.StatusOK {
		t.Fatalf("book the place: %d", got)
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(r.SelectionAddress(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	const body = `{"model_name":"m","token_ids":[1]}`
	if _, err := fmt.Fprintf(c, "POST /select HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	r.untilWaiting(t, 1)
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if gone {
		r.untilWaiting(t, 0)
	}
	if got := askService(t, r.App, http.MethodDelete, "/reservations/first", "", ""); got != http.StatusOK {
		t.Fatalf("free the place: %d", got)
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}
