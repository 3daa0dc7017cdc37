// Package cli holds the commands that work on a running router over its admin
// API: module, policy, worker, decisions and config reload. It knows the API's JSON and
// nothing of the router's inside.
//
// It keeps no state and starts no goroutines.
//
//	root.AddCommand(cli.Commands()...)
//	client := cli.NewClient("http://127.0.0.1:8081", token)
//	err := client.Do(ctx, "GET", "/v1/modules", nil, &answer)
package cli
