package selection_test

import "testing"

// A path that ends where an identifier should stand is no route, as in Dynamo's service.
func TestRow_APathWithoutItsIdentifierIsNoRoute(t *testing.T) {
	w := two(t, options{})
	for _, c := range []struct{ method, path, body string }{
		{"PATCH", "/workers/", `{"taints":["a"]}`},
		{"PATCH", "/workers/", ``},
		{"DELETE", "/workers/", ``},
		{"GET", "/workers/", ``},
		{"DELETE", "/reservations/", ``},
	} {
		w.do(t, c.method, c.path, c.body).refused(t, 404, "route not found")
	}
	w.do(t, "PATCH", "/workers", `{}`).refused(t, 405, "method not allowed")
	w.post(t, "/reservations//prefill_complete", "").refused(t, 404, "reservation  not found")
}
