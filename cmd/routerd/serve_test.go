package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// Who has the system choose the port finds it in the ready line.
func TestTheReadyLineTellsWhereTheIndexIsServed(t *testing.T) {
	router, rest, _, _ := serving(t, "--index.serve.listen=127.0.0.1:0")
	defer func() {
		if err := router.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := router.Wait(); err != nil {
			t.Error(err)
		}
	}()
	_, index, ok := strings.Cut(rest, " index=")
	if !ok {
		t.Fatalf("the ready line ends with %q, want an index", rest)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, index+"/index/v1/find", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET of what takes a POST: status %d, %v, want 405", resp.StatusCode, err)
	}
}
