package cli_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/routerd/routerd/internal/cli"
)

// What would be left out without a word is refused, and nothing is sent.
func TestADocumentThatJSONCannotSayIsRefused(t *testing.T) {
	r := start(t)
	const spec = "scorers: [{use: 'builtin:least-load'}]\n"
	const worker = "url: http://127.0.0.1:1\nmodel: m\nname: w\nblock_size: 16\n"
	for _, c := range []struct {
		line, text string
		want       []string
	}{
		{"policy apply some -", spec + "---\n" + spec, []string{"2 documents"}},
		{"policy apply some - --dry-run", "---\n" + spec + "---\n" + spec + "...\n---\n" + spec, []string{"3 documents"}},
		{"worker add -", worker + "---\n" + worker, []string{"2 documents"}},
		{"policy apply some -", "scorers:\n- use: builtin:least-load\n  weight: .nan\n", []string{"scorers[0].weight", ".nan", "a finite number"}},
		{"policy apply some -", "scorers:\n- use: builtin:least-load\n- use: builtin:kv-aware\n  config: {temperature: -.inf}\n", []string{"scorers[1].config.temperature", "-.inf"}},
	} {
		_, err := command(t, c.text, c.line+" --admin-url "+r.url+" --data-dir "+r.dir)
		var usage *cli.UsageError
		if !errors.As(err, &usage) {
			t.Errorf("%s: got %T %v", c.line, err, err)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got %v, want %q", c.line, err, part)
			}
		}
	}
	if _, err := command(t, "---\n"+spec+"...\n", "policy apply some - --admin-url "+r.url+" --data-dir "+r.dir); err != nil {
		t.Errorf("one document between markers: %v", err)
	}
}
