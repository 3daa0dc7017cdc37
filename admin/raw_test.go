package admin_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// raw sends bytes as they are and reads one answer; status 0 means that the
// connection ended without one.
func (b *bench) raw(t testing.TB, head string, more ...string) answer {
	t.Helper()
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, s := range append([]string{head}, more...) {
		if _, err := io.WriteString(c, s); err != nil {
			break // refused meanwhile: the answer is there
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: strings.Fields(head)[0]})
	if err != nil {
		return answer{body: err.Error()}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// head is the start of a request on a path that is sent as it is.
func head(method, uri string, headers ...string) string {
	return method + " " + uri + " HTTP/1.1\r\nHost: admin\r\nAuthorization: Bearer " + token + "\r\n" +
		strings.Join(append(headers, "", ""), "\r\n")
}
