package config_test

import (
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

// worker is a file with one worker that has further fields.
func worker(fields string) string {
	return "workers:\n  static:\n  - name: w\n    url: http://127.0.0.1:1\n    dp_size: 2\n    " + fields + "\n"
}

func TestRanksAreKeysInDecimal(t *testing.T) {
	for _, c := range []struct{ key, shown string }{
		{"x", "x"},
		{`"00"`, "00"},
		{"00", "00"},
		{"0x0", "0x0"},
		{"-0", "-0"},
		{"0.0", "0.0"},
		{"~", "~"},
		{"true", "true"},
		{`" 0"`, " 0"},
		{"4096", "4096"},
		{"99999999999999999999999", "99999999999999999999999"},
	} {
		for _, field := range []string{"kv_events", "replay"} {
			refused(t, worker(field+": {"+c.key+": 'tcp://127.0.0.1:1'}"), nil,
				"routerd.yaml:6:"+map[string]string{"kv_events": "17", "replay": "14"}[field]+": workers.static[0]."+field+`: "`+c.shown+`" is not allowed; allowed: ranks from 0 to 4095`)
		}
	}
	refused(t, worker(`kv_events: {"0": 'tcp://127.0.0.1:1', 0: 'tcp://127.0.0.1:2'}`), nil, `mapping key "0" already defined`)
}

func TestRanksMayBeNumbersOrText(t *testing.T) {
	l := mustLoad(t, worker(`kv_events: {0: 'tcp://127.0.0.1:1', "1": 'tcp://127.0.0.1:2'}`), nil)
	want := map[int]string{0: "tcp://127.0.0.1:1", 1: "tcp://127.0.0.1:2"}
	if diff := cmp.Diff(want, l.Config.Workers.Static[0].KVEvents); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestKeysThatAreNotTextAreRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"models: {16: {block_size: 16}, 0x10: {block_size: 17}}", `models: "16" is not allowed; allowed: text as keys`},
		{"models: {16: {}, '16': {}}", `mapping key "16" already defined`},
		{"models: {1e3: {}}", `models: "1000" is not allowed; allowed: text as keys`},
		{"models: {true: {}}", `models: "true" is not allowed; allowed: text as keys`},
		{"models: {2024-01-01: {}}", "allowed: text as keys"},
		{"models:\n  ~: {}\n", "routerd.yaml:"},
		{"models: {? m : {}}", "allowed: a key that is plain or quoted text"},
		{"models: {!!binary bQ==: {}}", "allowed: a key that is plain or quoted text"},
		{"models: {'': {}}", `models: "" is not allowed; allowed: keys of 1 to 256 bytes`},
		{"models: {" + strings.Repeat("m", 257) + ": {}}", "allowed: keys of 1 to 256 bytes"},
		{"policies: {fast: {scorers: [{use: 'builtin:kv-aware', config: {1: 2, 0x1: 3}}]}}", "allowed: text as keys"},
		{worker("labels: {5: a, 0x5: b}"), "workers.static[0].labels"},
	} {
		refused(t, c.text, nil, c.want)
	}
}

func TestKeysWithControlCharactersAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`models: {"a\u001fb": {}}`:              `routerd.yaml:1:10: models: "a\x1fb" is not allowed; allowed: keys of printable text`,
		`models: {"a\x1fblock_size": {}}`:       `models: "a\x1fblock_size" is not allowed`,
		`models: {"a\0b": {}}`:                  `models: "a\x00b" is not allowed`,
		`models: {"a\nb": {}}`:                  `models: "a\nb" is not allowed`,
		`{"frontend\x1fgrace": 5s}`:             `frontend\x1fgrace`,
		worker(`labels: {"a\u001fb": "x"}`):     `workers.static[0].labels: "a\x1fb" is not allowed`,
		"models: {\"a\x1fb\": {}}":              "control characters",
		`policies: {"p\u001fq": {scorers: []}}`: `policies: "p\x1fq" is not allowed`,
	} {
		refused(t, text, nil, want)
	}
}

func TestMergeKeysAreRefusedLikeAliases(t *testing.T) {
	for _, text := range []string{
		"frontend:\n  <<: {grace: 5s}\n", "<<: {frontend: {grace: 5s}}\n", "models:\n  <<: [{m: {}}, {n: {}}]\n",
		"policies: {fast: {scorers: [{use: 'builtin:kv-aware', config: {<<: {host_weight: 0.5}}}]}}", worker("labels: {<<: {a: b}}"),
	} {
		refused(t, text, nil, "merge keys are not allowed")
	}
}

func TestAFileIsUTF8(t *testing.T) {
	text := "frontend:\n  grace: 5s\n"
	if l := mustLoad(t, "\ufeff"+text, nil); l.Config.Frontend.Grace.String() != "5s" {
		t.Errorf("after a byte order mark: %+v", l.Config.Frontend)
	}
	var little, big, bare strings.Builder
	little.WriteString("\xff\xfe")
	big.WriteString("\xfe\xff")
	for _, u := range utf16.Encode([]rune(text)) {
		little.Write([]byte{byte(u), byte(u >> 8)})
		big.Write([]byte{byte(u >> 8), byte(u)})
		bare.Write([]byte{byte(u), byte(u >> 8)})
	}
	for _, bad := range []string{little.String(), big.String(), bare.String(), "data_dir: \"\xff\"\n", "data_dir: a\x00\n"} {
		refused(t, bad, nil, "routerd.yaml: YAML: the file is not UTF-8 text")
	}
}

func TestAFileIsOneDocumentWithoutDirectives(t *testing.T) {
	refused(t, "%YAML 1.2\n---\nfrontend: {grace: 5s}\n", nil, "routerd.yaml:1:1: YAML: directives such as %YAML are not allowed")
	refused(t, "%FOO\n---\nfrontend: {grace: 5s}\n", nil, "directives such as %YAML are not allowed")
	refused(t, "---\n---\nfrontend: {grace: 5s}\n", nil, "several documents")
	mustLoad(t, "---\n# comment\n", nil)
	mustLoad(t, "# comment\n---\nfrontend: {grace: 5s}\n", nil)
}

func TestWholeNumbersAreWrittenInDecimal(t *testing.T) {
	for _, literal := range []string{"010", "0o10", "0x8", "0b1", "+8", "-0", "8.0", "1e0", "1e3", "8_0", "99999999999999999999", "'8'", ".inf"} {
		shown := `"` + strings.Trim(literal, "'") + `" is not allowed; allowed: `
		refused(t, "frontend:\n  retries: "+literal+"\n", nil, "routerd.yaml:2:3: frontend.retries: "+shown+"a whole number from 0 to 10")
		refused(t, "plugins: {fuel_cap: "+literal+"}\n", nil, "plugins.fuel_cap: "+shown+"a whole number")
		refused(t, "models: {m: {block_size: "+literal+"}}\n", nil, "models.m.block_size: "+shown+"a whole number")
		refused(t, worker("adapters: [{name: a, id: "+literal+"}]"), nil, "workers.static[0].adapters[0].id: "+shown)
		refused(t, "frontend: {max_body: "+literal+"}\n", nil, "frontend.max_body: "+`"`+strings.Trim(literal, "'")+`"`)
		if literal != "'8'" {
			refused(t, worker("id: "+literal), nil, "workers.static[0].id: "+shown+"a number from 0 to")
		}
	}
	refused(t, "frontend: {max_body: 0x100000}\n", nil, `frontend.max_body: "0x100000"`)
	refused(t, "frontend: {max_body: '01048576'}\n", nil, `frontend.max_body: "01048576"`)
	refused(t, worker("id: '007'"), nil, `workers.static[0].id: "007"`)
	refused(t, "", []string{"ROUTERD_FRONTEND__RETRIES=01"}, `ROUTERD_FRONTEND__RETRIES: frontend.retries: "01" is not allowed`)
}

func TestNumbersInsideAPolicyAreWrittenInDecimal(t *testing.T) {
	policy := func(weight, host string) string {
		return "policies: {fast: {scorers: [{use: 'builtin:kv-aware', weight: " + weight + ", config: {host_weight: " + host + "}}]}}"
	}
	refused(t, policy("010", "1"), nil, `policies.fast.scorers[0].weight: "010" is not allowed; allowed: a decimal number`)
	refused(t, policy("1", "0x1"), nil, `policies.fast.scorers[0].config.host_weight: "0x1" is not allowed`)
	mustLoad(t, policy("10", "0.5"), nil)
	mustLoad(t, policy("1.0", "0"), nil)
}

func TestANumberInTheEnvironmentHidesTheFilesLiteral(t *testing.T) {
	l := mustLoad(t, "frontend: {retries: 010, max_body: 1048576}\nrouting: {seed: 18446744073709551615}\nmodels: {m: {block_size: 0}}\n", []string{"ROUTERD_FRONTEND__RETRIES=2"})
	if c := l.Config; c.Frontend.Retries != 2 || c.Frontend.MaxBody != 1<<20 || c.Routing.Seed != 1<<64-1 {
		t.Errorf("got %+v", c)
	}
}
