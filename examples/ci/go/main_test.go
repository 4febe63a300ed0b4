package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestTransfer runs the program in a network. `go test` needs no root, and two runs are equal.
func TestTransfer(t *testing.T) {
	build := exec.Command("go", "build", "-o", "transfer", ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	run := exec.Command("outcast", "exec", "net.yaml", "--host", "h1", "--json", "--", "./transfer", "get", "h2")
	run.Stderr = os.Stderr
	said, err := run.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	var done struct {
		Status         int
		Stdout, Stderr string
	}
	if err := json.Unmarshal(said, &done); err != nil {
		t.Fatal(err)
	}
	if done.Status != 0 || !strings.HasPrefix(done.Stdout, "1000000 bytes in ") {
		t.Errorf("%+v", done)
	}
}
