package host_test

import (
	"errors"
	"testing"

	"github.com/routerd/routerd/host"
	. "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

func TestCheckTakesAModuleThroughTheWholePipeline(t *testing.T) {
	const needs = `,"config_schema":{"type":"object","required":["x"],"properties":{"x":{"type":"number"}}}`
	const fills = `,"config_schema":{"type":"object","required":["x"],"properties":{"x":{"type":"number","default":1}}}`
	for _, c := range []struct {
		name  string
		guest Guest
		how   host.Checked
		step  string
		code  abi.HostCode
	}{
		{name: "a good one", guest: Guest{}, how: host.CheckedConfigured},
		{name: "defaults make its configuration", guest: Guest{Extra: fills}, how: host.CheckedConfigured},
		{name: "its schema needs more", guest: Guest{Extra: needs}, how: host.CheckedLoad},
		{name: "its schema needs more and {} makes it trap", guest: Guest{Extra: needs, Configure: Op(Unreachable)}, how: host.CheckedLoad},
		{name: "it refuses the default", guest: Guest{Extra: fills, Configure: I32(-1)}, how: host.CheckedLoad},
		{name: "it refuses to have none", guest: Guest{Configure: I32(-1)}, step: host.StepConfigure, code: abi.EConfigure},
		{name: "its start traps, and its schema needs more", guest: Guest{Extra: needs, Start: Op(Unreachable)}, step: host.StepStart, code: abi.EInitTrap},
		{name: "its start traps", guest: Guest{Initialize: Op(Unreachable)}, step: host.StepStart, code: abi.EInitTrap},
		{name: "its scores cannot be believed", guest: Guest{Score: I32(0)}, step: host.StepSelfTest, code: abi.EUnwritten},
		{name: "it lacks an export", guest: Guest{Skip: map[string]bool{"rp_score": true}}, step: host.StepExports, code: abi.EExport},
		{name: "the engine refuses it", guest: Guest{Score: Op(I32Add)}, step: host.StepValidate, code: abi.EParse},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRuntime(t) // its end finds what is left
			how, err := r.Check(t.Context(), c.guest.Bytes())
			var le *host.LoadError
			if c.step == "" {
				if err != nil || how != c.how {
					t.Errorf("got %q, %v, want %q", how, err, c.how)
				}
			} else if !errors.As(err, &le) || le.Step != c.step || le.Code != c.code {
				t.Errorf("got %v, want %s at %s", err, c.code, c.step)
			}
			if u := r.Usage(); u.Instances != 0 || u.Modules != 0 || u.Pools != 0 {
				t.Errorf("kept: %+v", u)
			}
		})
	}
}

func TestCheckLeavesTheStagesInUseAlone(t *testing.T) {
	r := newRuntime(t)
	s := stage(t, r, good(), "")
	if how, err := r.Check(t.Context(), good()); err != nil || how != host.CheckedConfigured {
		t.Errorf("got %q, %v", how, err)
	}
	if _, _, err := score(s, 3); err != nil {
		t.Errorf("the stage after the check: %v", err)
	}
}
