package apiserver_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/internal/apiserver"
	"github.com/routerd/routerd/internal/httpapi"
)

func TestWhatCannotBeReadHasConstantTexts(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   httpapi.Code
	}{
		{fmt.Errorf("CANARY: %w", fasthttp.ErrBodyTooLarge), 413, httpapi.CodeTooLarge},
		{fmt.Errorf("CANARY: %w", &fasthttp.ErrSmallBuffer{}), 431, httpapi.CodeTooLarge},
		{fmt.Errorf("CANARY: %w", &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}), 408, httpapi.CodeInvalid},
		{errors.New("CANARY"), 400, httpapi.CodeInvalid},
	} {
		got := apiserver.ParseFailure(c.err)
		if got.HTTPStatus() != c.status || got.Code != c.code || strings.Contains(got.Message, "CANARY") {
			t.Errorf("%v: got %+v", c.err, got)
		}
	}
}
