package app_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/internal/app"
)

// silentEngine takes connections and never answers.
func silentEngine(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-ended })
	return "http://" + ln.Addr().String()
}

func TestSilentWorkersDelayTheStartAtMostBriefly(t *testing.T) {
	cfg := settings(t, engine(t, "e1", nil))
	for i := range 3 {
		rec, err := fleet.Record{NoHealthCheck: true, Name: fmt.Sprintf("silent%d", i), URL: silentEngine(t), Model: "m"}.Normalised()
		if err != nil {
			t.Fatal(err)
		}
		cfg.Workers.Static = append(cfg.Workers.Static, rec)
	}
	sized, err := fleet.Record{NoHealthCheck: true, Name: "sized", URL: silentEngine(t), Model: "sized", BlockSize: 16}.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Workers.Static = append(cfg.Workers.Static, sized)
	began := time.Now()
	a, err := app.Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if took := time.Since(began); took > 1500*time.Millisecond {
		t.Errorf("the start took %s", took)
	}
	want := map[string]string{"w1": "ready", "sized": "ready", "silent0": "incomplete", "silent1": "incomplete", "silent2": "incomplete"}
	if diff := cmp.Diff(want, lifecycles(t, a)); diff != "" {
		t.Error(diff)
	}
}
