package ociimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// example is an image of one file and a library, written anew at that time.
func example(t *testing.T, written time.Time) Image {
	t.Helper()
	dir := t.TempDir()
	image := Image{
		Reference: "muster-example:v1", Architecture: "amd64", Entrypoint: []string{"/example"}, User: "65532:65532",
		Created: time.Unix(1700000000, 0), Labels: map[string]string{ocispec.AnnotationVersion: "v1", ocispec.AnnotationTitle: "muster-example"},
	}
	for place, content := range map[string]string{"example": "program", "lib/deep/library.so": "library"} {
		source := filepath.Join(dir, filepath.Base(place))
		if err := os.WriteFile(source, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(source, written, written); err != nil {
			t.Fatal(err)
		}
	}
	image.Files = []File{{"example", filepath.Join(dir, "example")}, {"lib/deep/library.so", filepath.Join(dir, "library.so")}}
	return image
}

func written(t *testing.T, image Image) ([]byte, digest.Digest) {
	t.Helper()
	var out bytes.Buffer
	d, err := Write(&out, image)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), d
}

// entry is one of an archive.
type entry struct {
	tar.Header
	content string
}

func unpacked(t *testing.T, r io.Reader) (names []string, entries map[string]entry) {
	t.Helper()
	entries = map[string]entry{}
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names, entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		entries[header.Name] = entry{*header, string(content)}
	}
}

func TestTheSameProgramsGiveTheSameImage(t *testing.T) {
	first, d := written(t, example(t, time.Unix(1, 0)))
	again, e := written(t, example(t, time.Now()))
	if d != e || !bytes.Equal(first, again) {
		t.Errorf("once it is %s, once %s; the archives are the same: %v", d, e, bytes.Equal(first, again))
	}
	other := example(t, time.Unix(1, 0))
	if err := os.WriteFile(other.Files[0].Source, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, f := written(t, other); f == d {
		t.Error("another program gives the same image")
	}
}

// TestWhatTheIndexNamesIsThere goes from the index as a runtime does.
func TestWhatTheIndexNamesIsThere(t *testing.T) {
	content, d := written(t, example(t, time.Now()))
	_, files := unpacked(t, bytes.NewReader(content))
	get := func(descriptor ocispec.Descriptor, into any) []byte {
		t.Helper()
		content := []byte(files["blobs/sha256/"+descriptor.Digest.Encoded()].content)
		if got := digest.FromBytes(content); got != descriptor.Digest || int64(len(content)) != descriptor.Size {
			t.Fatalf("of %s %s has %d bytes, want %d", descriptor.MediaType, got, len(content), descriptor.Size)
		}
		if into != nil {
			if err := json.Unmarshal(content, into); err != nil {
				t.Fatal(err)
			}
		}
		return content
	}
	var layout ocispec.ImageLayout
	var index ocispec.Index
	if err := errors.Join(json.Unmarshal([]byte(files["oci-layout"].content), &layout), json.Unmarshal([]byte(files["index.json"].content), &index)); err != nil {
		t.Fatal(err)
	}
	if layout.Version != "1.0.0" || len(index.Manifests) != 1 || index.Manifests[0].Digest != d {
		t.Fatalf("layout %s with %+v, want %s", layout.Version, index.Manifests, d)
	}
	want := map[string]string{"io.containerd.image.name": "muster-example:v1", "org.opencontainers.image.ref.name": "v1"}
	if diff := cmp.Diff(want, index.Manifests[0].Annotations); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	var manifest ocispec.Manifest
	var config ocispec.Image
	get(index.Manifests[0], &manifest)
	get(manifest.Config, &config)
	layer, err := gzip.NewReader(bytes.NewReader(get(manifest.Layers[0], nil)))
	if err != nil {
		t.Fatal(err)
	}
	if !layer.ModTime.IsZero() {
		t.Errorf("the layer says that it was compressed at %s", layer.ModTime)
	}
	plain, err := io.ReadAll(layer)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]digest.Digest{digest.FromBytes(plain)}, config.RootFS.DiffIDs); diff != "" {
		t.Errorf("layers (-want +got):\n%s", diff)
	}
	if config.Config.User != "65532:65532" || !cmp.Equal(config.Config.Entrypoint, []string{"/example"}) || config.OS != "linux" || config.Architecture != "amd64" ||
		config.Config.Labels[ocispec.AnnotationVersion] != "v1" || manifest.Annotations[ocispec.AnnotationTitle] != "muster-example" {
		t.Errorf("configuration %+v, annotations %v", config, manifest.Annotations)
	}
	names, inside := unpacked(t, bytes.NewReader(plain))
	if diff := cmp.Diff([]string{"example", "lib/", "lib/deep/", "lib/deep/library.so"}, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for name, e := range inside {
		mode := int64(0o555)
		if strings.HasSuffix(name, "/") {
			mode = 0o755
		}
		if e.Mode != mode || e.Uid != 0 || e.Gid != 0 || !e.ModTime.Equal(time.Unix(1700000000, 0)) {
			t.Errorf("%s is %o of %d:%d at %s", name, e.Mode, e.Uid, e.Gid, e.ModTime)
		}
	}
	if inside["lib/deep/library.so"].content != "library" {
		t.Errorf("the library is %q", inside["lib/deep/library.so"].content)
	}
}

func TestAMissingProgramIsNamed(t *testing.T) {
	image := example(t, time.Now())
	image.Files[0].Source += "x"
	if _, err := Write(io.Discard, image); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "muster-example:v1") {
		t.Errorf("the error is %v", err)
	}
}
