package kubelet

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// image is in no registry: it is imported. Its program is a pod's pause as well.
const image = "muster.test/sleeper:1"

// compileWithin bounds the compilation of the sleeper.
const compileWithin = 5 * time.Minute

// writeImage makes the image, of one static program, as a docker archive at path. All
// its processes have that in their environment.
func writeImage(t *testing.T, path string, environment ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), compileWithin)
	defer cancel()
	program := filepath.Join(t.TempDir(), "sleeper")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", program, "./sleeper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compiling the sleeper: %v\n%s", err, out)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	layer := archive(t, file{"sleeper", content})
	encode := func(v any) []byte {
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	config := encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/sleeper"}, "Env": environment},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	manifest := encode([]map[string]any{{"Config": "config.json", "RepoTags": []string{image}, "Layers": []string{"layer.tar"}}})
	all := archive(t, file{"manifest.json", manifest}, file{"config.json", config}, file{"layer.tar", layer})
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
}

type file struct {
	name    string
	content []byte
}

// archive is a tar archive of executable files.
func archive(t *testing.T, files ...file) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
