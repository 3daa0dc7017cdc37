package abi_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/plugins/abi"
)

const emptyModule = "\x00asm\x01\x00\x00\x00"

// custom is a custom section.
func custom(name, body string) string {
	return "\x00" + string(rune(1+len(name)+len(body))) + string(rune(len(name))) + name + body
}

func TestAppendManifestAddsOrReplacesTheSection(t *testing.T) {
	types := "\x01\x04\x01\x60\x00\x00"
	for _, c := range []struct{ name, in, want string }{
		{"none yet", emptyModule + types, emptyModule + types + custom(abi.ManifestSection, "{}")},
		{"replaced", emptyModule + custom(abi.ManifestSection, "old") + types, emptyModule + types + custom(abi.ManifestSection, "{}")},
		{"others stay", emptyModule + custom("name", "x"), emptyModule + custom("name", "x") + custom(abi.ManifestSection, "{}")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := abi.AppendManifest([]byte(c.in), []byte("{}"))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]byte(c.want), got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAppendManifestTwiceIsOneSection(t *testing.T) {
	once, err := abi.AppendManifest([]byte(emptyModule), bytes.Repeat([]byte("x"), 300))
	if err != nil {
		t.Fatal(err)
	}
	twice, err := abi.AppendManifest(once, bytes.Repeat([]byte("y"), 300))
	if err != nil || len(twice) != len(once) || bytes.Contains(twice, []byte("xx")) {
		t.Errorf("got %d bytes, %v, want %d", len(twice), err, len(once))
	}
}

func TestAppendManifestRefuses(t *testing.T) {
	section := custom(abi.ManifestSection, "{}")
	if _, err := abi.AppendManifest([]byte(emptyModule+section+section), []byte("{}")); !errors.Is(err, abi.ErrTwoManifests) {
		t.Errorf("two manifests: %v", err)
	}
	for name, in := range map[string]string{
		"empty":                    "",
		"short":                    "\x00asm",
		"component":                "\x00asm\x0d\x00\x01\x00",
		"no size":                  emptyModule + "\x01",
		"size past the end":        emptyModule + "\x01\x05\x00",
		"size of over 32 bits":     emptyModule + "\x01\xff\xff\xff\xff\x1f",
		"size without an end":      emptyModule + "\x01\x80\x80\x80\x80\x80\x00",
		"custom without a name":    emptyModule + "\x00\x00",
		"name past the section":    emptyModule + "\x00\x02\x05a",
		"size at the end, no body": emptyModule + "\x00\xff\xff\xff\xff\x0f",
	} {
		if _, err := abi.AppendManifest([]byte(in), []byte("{}")); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := abi.AppendManifest([]byte(emptyModule), []byte(strings.Repeat(" ", 64<<10+1))); err == nil {
		t.Error("a manifest over 64 KiB was accepted")
	}
}

func FuzzAppendManifest(f *testing.F) {
	f.Add([]byte(emptyModule), []byte("{}"))
	f.Add([]byte(emptyModule+custom(abi.ManifestSection, "{}")), []byte("{}"))
	f.Fuzz(func(t *testing.T, wasm, manifest []byte) {
		once, err := abi.AppendManifest(wasm, manifest)
		if err != nil {
			return
		}
		again, err := abi.AppendManifest(once, manifest)
		if err != nil || !bytes.Equal(once, again) {
			t.Fatalf("a second append changed the module: %v", err)
		}
	})
}
