package policy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/plugins/abi"
)

// pages is where each built-in stage is described, for those who choose one.
const pages = "../../docs/policies"

// composed are pages of a specification that is no stage of its own.
var composed = []string{"power-of-two"}

// sections are the headings of a page, in order.
var sections = []string{"Formula", "Inputs", "Config", "Answers", "Use it when", "Do not use it when", "Specification"}

// page is a built-in policy as its page shows it.
type page struct {
	name, text string
	sections   map[string]string
	headings   []string
	spec       policy.Spec
	pipeline   *policy.Pipeline
}

func readPage(t *testing.T, name string) page {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(pages, name+".md"))
	if err != nil {
		t.Fatal(err)
	}
	p := page{name: name, text: string(b), sections: map[string]string{}}
	for _, part := range strings.Split(p.text, "\n## ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		p.headings = append(p.headings, heading)
		p.sections[heading] = body
	}
	_, code, ok := strings.Cut(p.sections["Specification"], "```json\n")
	code, _, closed := strings.Cut(code, "```")
	if !ok || !closed {
		t.Fatalf("%s has no specification to paste", name)
	}
	if p.spec, err = policy.ParseSpec([]byte(code)); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if p.pipeline, _, err = policy.Compile(t.Context(), p.spec, nil); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p
}

// rows are the cells of the first table of a section, without its heading.
func (p *page) rows(section string) (rows [][]string) {
	for line := range strings.Lines(p.sections[section]) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 2 {
		return nil
	}
	return rows[2:]
}

// everyBuiltin names all built-in stages without their prefix.
func everyBuiltin() (names []string) {
	for _, use := range slices.Concat(policy.Builtins(), policy.BuiltinPickers(), policy.BuiltinPolicies(), []string{policy.LoraAffinity}) {
		names = append(names, strings.TrimPrefix(use, policy.BuiltinPrefix))
	}
	return names
}

func everyPage() []string {
	names := append(everyBuiltin(), composed...)
	slices.Sort(names)
	return names
}

func TestEveryBuiltinHasItsPage(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(pages, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".md"); name != "README" {
			got = append(got, name)
		}
	}
	if diff := cmp.Diff(everyPage(), got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	b, err := os.ReadFile(filepath.Join(pages, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range everyPage() {
		if !strings.Contains(string(b), "("+name+".md)") {
			t.Errorf("README.md has no link to %s.md", name)
		}
	}
}

func TestPagesHaveOneForm(t *testing.T) {
	for _, name := range everyPage() {
		p := readPage(t, name)
		if diff := cmp.Diff(sections, p.headings); diff != "" {
			t.Errorf("%s: headings (-want +got):\n%s", name, diff)
		}
		if !strings.HasPrefix(p.text, "# "+name+"\n\n") {
			t.Errorf("%s: the title is another", name)
		}
		uses := policy.BuiltinPrefix + name
		if !slices.Contains(composed, name) && !slices.ContainsFunc(p.pipeline.Stages(), func(s policy.StageName) bool { return s.Use == uses }) {
			t.Errorf("%s: the specification does not use %s", name, uses)
		}
	}
}

// TestPagesNameEveryInput: what the stage reads is on its page, and nothing that
// it does not read is said to be an input.
func TestPagesNameEveryInput(t *testing.T) {
	code := regexp.MustCompile("`([^`]+)`")
	for _, name := range everyPage() {
		p := readPage(t, name)
		var got, want []string
		for _, row := range p.rows("Inputs") {
			for _, m := range code.FindAllStringSubmatch(row[0], -1) {
				if _, ok := abi.ColumnByName(m[1]); ok {
					got = append(got, m[1])
				} else if _, ok := abi.FieldByName(m[1]); !ok {
					t.Errorf("%s: there is no input %s", name, m[1])
				}
			}
		}
		for i, stage := range policy.StagesOf(p.pipeline) {
			if use := p.pipeline.Stages()[i].Use; slices.Contains(composed, name) || use == policy.BuiltinPrefix+name {
				set := stage.Columns()
				want = append(want, set.Names()...)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: inputs (-want +got):\n%s", name, diff)
		}
	}
}

func TestPagesNameEverySetting(t *testing.T) {
	for _, name := range everyBuiltin() {
		p := readPage(t, name)
		var want, got [][]string
		for i, stage := range policy.StagesOf(p.pipeline) {
			if p.pipeline.Stages()[i].Use != policy.BuiltinPrefix+name {
				continue
			}
			if name == "softmax" { // whose specification has a temperature
				stage = policy.StagesOf(compiledFrom(t, withPicker(policy.SoftmaxPicker)))[1]
			}
			for _, s := range policy.SettingsOf(stage) {
				want = append(want, []string{"`" + s.Name + "`", s.Text(), s.Allowed})
			}
		}
		for _, row := range p.rows("Config") {
			got = append(got, row[:3])
		}
		if name == "softmax" && len(got) == 1 {
			got[0][2] = strings.SplitN(got[0][2], ":", 2)[0]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: config (-want +got):\n%s", name, diff)
		}
		if len(want) == 0 && !strings.HasPrefix(strings.TrimSpace(p.sections["Config"]), "None: `{}` or no config") {
			t.Errorf("%s: the page does not say that there is no config", name)
		}
	}
}

func withPicker(use string) policy.Spec {
	return filtered(nil, []string{"builtin:least-load"}, func(s *policy.Spec) { s.Picker = picker(use) })
}

func compiledFrom(t *testing.T, spec policy.Spec) *policy.Pipeline {
	t.Helper()
	p, _, err := policy.Compile(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSettingsKeepToTheirRange is about configuration and override alike.
func TestSettingsKeepToTheirRange(t *testing.T) {
	for _, name := range everyBuiltin() {
		p := readPage(t, name)
		for i, stage := range policy.StagesOf(p.pipeline) {
			allowed, refused := policy.Extremes(stage)
			for _, o := range allowed {
				if err := checkBoth(t, &p, i, stage, o); err != nil {
					t.Errorf("%s: %s is refused: %v", name, o, err)
				}
			}
			for _, o := range refused {
				if err := checkBoth(t, &p, i, stage, o); err == nil {
					t.Errorf("%s: %s is taken", name, o)
				}
			}
			if len(allowed) > 0 {
				for _, o := range []string{`{"unknown":1}`, `[]`, `{"x":1,"x":2}`, `"1"`} {
					if _, err := withConfigOf(&p, i, json.RawMessage(o)).Normalised(); err == nil {
						t.Errorf("%s: the config %s is taken", name, o)
					}
				}
			}
		}
	}
}

// checkBoth takes one value as an override and as configuration of the stage, and
// reports where one is refused and the other is not.
func checkBoth(t *testing.T, p *page, stage int, s policy.Stage, o map[string]json.RawMessage) error {
	t.Helper()
	config, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	known, asked := s.CheckOverrides(o)
	if asked == nil && len(known) != 1 {
		t.Errorf("%s: the override %s is not known", p.name, o)
	}
	_, configured := withConfigOf(p, stage, config).Normalised()
	if (asked == nil) != (configured == nil) {
		t.Errorf("%s: %s as override: %v; as configuration: %v", p.name, o, asked, configured)
	}
	return asked
}

// withConfigOf is the page's specification with another configuration of one of
// its stages.
func withConfigOf(p *page, stage int, config json.RawMessage) policy.Spec {
	spec, at := p.spec.Clone(), 0
	spec.EachStage(func(_ string, _ abi.Kind, st *policy.StageSpec) {
		if at == stage {
			st.Config = config
		}
		at++
	})
	return spec
}
