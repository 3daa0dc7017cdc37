package config_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/config"
)

var update = flag.Bool("update", false, "write generated files")

func TestTheReferenceIsFresh(t *testing.T) {
	const name = "../../docs/reference/config.md"
	if *update {
		if err := os.WriteFile(name, []byte(config.Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Reference(), string(got)); diff != "" {
		t.Errorf("run go generate ./internal/config (-want +got)\n%s", diff)
	}
}

// A key that is always refused is no key.
func TestTheReferenceListsNoKeyThatNothingMayBe(t *testing.T) {
	for key, value := range map[string]string{"id": "1", "name": "w", "url": "'http://127.0.0.1:1'"} {
		refused(t, "workers: {dns: [{host: vllm.svc, record: a, port: 1, template: {"+key+": "+value+"}}]}", nil, "workers.dns[0].template."+key+":", "allowed: none: ")
		if row := "`workers.dns[].template." + key + "`"; strings.Contains(config.Reference(), row) {
			t.Errorf("the reference has %s", row)
		}
		if row := "`workers.static[]." + key + "`"; !strings.Contains(config.Reference(), row) {
			t.Errorf("the reference lacks %s", row)
		}
	}
}
