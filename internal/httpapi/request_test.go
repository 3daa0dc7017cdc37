package httpapi_test

import (
	"strings"
	"testing"

	"github.com/routerd/routerd/internal/httpapi"
)

func TestAPathIsComparedAsItIsSent(t *testing.T) {
	for _, c := range []struct {
		pattern, path, name string
		ok                  bool
	}{
		{"/a", "/a", "", true},
		{"/a", "/a/", "", false},
		{"/a", "//a", "", false},
		{"/a", "/b/../a", "", false},
		{"/a", "a", "", false},
		{"/a", "", "", false},
		{"/a", "/%61", "", false},
		{"/a/{id}", "/a/b", "b", true},
		{"/a/{id}", "/a/b%2Fc%20d", "b/c d", true},
		{"/a/{id}", "/a/b+c", "b+c", true},
		{"/a/{id}", "/a", "", false},
		{"/a/{id}", "/a/", "", true},
		{"/a/{id}", "/a/b/c", "", false},
		{"/a/{id}", "/a/%zz", "", false},
		{"/a/{id}/c", "/a/b/c", "b", true},
		{"/a/{id}/c", "/a/b/d", "b", false},
		{"/a/{id}/c", "/a/b", "", false},
	} {
		name, ok := httpapi.Match(c.pattern, c.path)
		if ok != c.ok || ok && name != c.name {
			t.Errorf("%s of %s: got %q, %t", c.path, c.pattern, name, ok)
		}
	}
}

func TestAURIIsCutWithoutDecoding(t *testing.T) {
	for uri, want := range map[string][2]string{
		"/a?b=c?d": {"/a", "b=c?d"}, "/a%3Fb": {"/a%3Fb", ""}, "http://h/a?b": {"/a", "b"}, "HTTPS://u:p@h:1/a/b": {"/a/b", ""}, "http://h": {"http://h", ""}, "*": {"*", ""},
	} {
		if path, query := httpapi.Split(uri); path != want[0] || query != want[1] {
			t.Errorf("%s: got %q, %q", uri, path, query)
		}
	}
}

func TestAQueryHasOnlyKnownParametersOnce(t *testing.T) {
	v, err := httpapi.ParseQuery("a=1&b=%20x", []string{"a", "b"})
	if err != nil || v.Get("a") != "1" || v.Get("b") != " x" {
		t.Errorf("got %v, %v", v, err)
	}
	for raw, want := range map[string]string{"c=1": "the parameters a, b", "a=1&a=2": "given twice", "a=%zz": "not well-formed", "a=1;b=2": "not well-formed"} {
		if _, err := httpapi.ParseQuery(raw, []string{"a", "b"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", raw, err)
		}
	}
	if _, err := httpapi.ParseQuery("a=1", nil); err == nil || !strings.Contains(err.Error(), "no parameters") {
		t.Errorf("got %v", err)
	}
}

func TestOneHeaderHasTheToken(t *testing.T) {
	const token = "0123456789abcdef"
	for _, c := range []struct {
		headers []string
		is      bool
	}{
		{[]string{"Bearer " + token}, true},
		{[]string{"bearer  " + token + " "}, true},
		{nil, false},
		{[]string{""}, false},
		{[]string{token}, false},
		{[]string{"Basic " + token}, false},
		{[]string{"Bearer " + token + "0"}, false},
		{[]string{"Bearer " + token[1:]}, false},
		{[]string{"Bearer " + token, "Bearer " + token}, false},
	} {
		var raw [][]byte
		for _, h := range c.headers {
			raw = append(raw, []byte(h))
		}
		if got := httpapi.BearerIs(raw, token); got != c.is {
			t.Errorf("%q: got %t", c.headers, got)
		}
	}
	for _, bad := range []string{"", "0123456789abcde", "0123456789 abcdef", "0123456789abcdef\n", "0123456789abcdeé"} {
		if err := httpapi.CheckToken("token", bad); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func TestAHeaderIsFoundInAnyCase(t *testing.T) {
	head := []byte("Host: a\r\ncontent-LENGTH : 5\r\nX: Content-Type\r\n\r\n")
	if !httpapi.HasHeader(head, "Content-Length") || httpapi.HasHeader(head, "Content-Type") {
		t.Error("the wrong header was found")
	}
}
