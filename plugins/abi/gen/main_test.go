package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestGeneratedFilesAreFresh(t *testing.T) {
	for _, o := range outputs() {
		got, err := os.ReadFile(filepath.Join("..", o.path))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, o.content()) {
			t.Errorf("%s is not what the tables make: run go generate ./plugins/abi", o.path)
		}
	}
}
