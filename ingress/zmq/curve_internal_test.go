package zmq

import (
	"strings"
	"testing"
)

func TestKeysWithoutCurveInTheLibraryAreRefused(t *testing.T) {
	c := Curve{ServerKey: "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"}
	if err := c.validate(true); err != nil {
		t.Error(err)
	}
	if err := c.validate(false); err == nil || !strings.Contains(err.Error(), "curve.server_key") || !strings.Contains(err.Error(), "libzmq was built without CURVE") {
		t.Errorf("got %v", err)
	}
	if err := (Curve{}).validate(false); err != nil {
		t.Error(err)
	}
}
