package ociimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "crypto/sha256" // go-digest finds it by its name
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// containerdName is the annotation by which containerd and Docker name what they import.
const containerdName = "io.containerd.image.name"

// File is a file of an image, executable, root's, and written by nobody.
type File struct {
	// Path is where it is in the image, from the root and without the first slash.
	Path string
	// Source is where it is on disk. Of a link, what it leads to is taken.
	Source string
}

// Image is what is to be in an image and said of it.
type Image struct {
	// Reference is its name, and a tag.
	Reference string
	// Architecture is that of the programs, as Go calls it.
	Architecture string
	// Files are in this order in the layer, behind their folders.
	Files      []File
	Entrypoint []string
	// User is a number, and a group's after a colon: there is no /etc/passwd.
	User string
	// Created is the time of the image and of all its files, in whole seconds.
	Created time.Time
	// Labels are on the image, and annotations of its manifest.
	Labels map[string]string
}

// blob is a part of an image, which is found by its digest.
type blob struct {
	ocispec.Descriptor
	content []byte
}

func newBlob(mediaType string, content []byte) blob {
	return blob{ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}, content}
}

// Write writes the image to w and returns the digest of its manifest, which is what a
// registry knows it by.
func Write(w io.Writer, image Image) (digest.Digest, error) {
	layer, diffID, err := layer(image.Files, image.Created)
	if err != nil {
		return "", fmt.Errorf("packing the files of %s: %w", image.Reference, err)
	}
	created := image.Created.UTC()
	config, err := jsonBlob(ocispec.MediaTypeImageConfig, ocispec.Image{
		Created:  &created,
		Platform: ocispec.Platform{Architecture: image.Architecture, OS: "linux"},
		Config:   ocispec.ImageConfig{User: image.User, Entrypoint: image.Entrypoint, WorkingDir: "/", Labels: image.Labels},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{diffID}},
		History:  []ocispec.History{{Created: &created, CreatedBy: image.Reference}},
	})
	if err != nil {
		return "", err
	}
	manifest, err := jsonBlob(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor}, Annotations: image.Labels,
	})
	if err != nil {
		return "", err
	}
	named := manifest.Descriptor
	named.Platform = &ocispec.Platform{Architecture: image.Architecture, OS: "linux"}
	_, tag, _ := strings.Cut(path.Base(image.Reference), ":")
	named.Annotations = map[string]string{containerdName: image.Reference, ocispec.AnnotationRefName: tag}
	index, err := jsonBlob(ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{named},
	})
	if err != nil {
		return "", err
	}
	version, err := json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		return "", fmt.Errorf("encoding the layout's version: %w", err)
	}
	archive := newArchive(w, image.Created)
	archive.file(ocispec.ImageLayoutFile, 0o444, version)
	archive.file(ocispec.ImageIndexFile, 0o444, index.content)
	for _, b := range []blob{manifest, config, layer} {
		archive.file(path.Join(ocispec.ImageBlobsDir, b.Digest.Algorithm().String(), b.Digest.Encoded()), 0o444, b.content)
	}
	if err := archive.close(); err != nil {
		return "", fmt.Errorf("writing %s: %w", image.Reference, err)
	}
	return manifest.Digest, nil
}

func jsonBlob(mediaType string, value any) (blob, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return blob{}, fmt.Errorf("encoding %s: %w", mediaType, err)
	}
	return newBlob(mediaType, content), nil
}

// layer packs the files, and says the digest of what is packed before it is compressed.
func layer(files []File, at time.Time) (blob, digest.Digest, error) {
	var compressed bytes.Buffer
	plain := digest.Canonical.Digester()
	zip := gzip.NewWriter(&compressed)
	archive := newArchive(io.MultiWriter(zip, plain.Hash()), at)
	for _, f := range files {
		content, err := os.ReadFile(f.Source)
		if err != nil {
			return blob{}, "", err
		}
		archive.file(f.Path, 0o555, content)
	}
	if err := archive.close(); err != nil {
		return blob{}, "", err
	}
	if err := zip.Close(); err != nil {
		return blob{}, "", err
	}
	return newBlob(ocispec.MediaTypeImageLayerGzip, compressed.Bytes()), plain.Digest(), nil
}

// archive is a tar archive in which all is root's and of one time. The first error is
// returned by close.
type archive struct {
	*tar.Writer
	at      time.Time
	folders []string
	err     error
}

func newArchive(w io.Writer, at time.Time) *archive {
	return &archive{Writer: tar.NewWriter(w), at: at.UTC().Truncate(time.Second)}
}

// file adds a file behind the folders that it is in.
func (a *archive) file(name string, mode int64, content []byte) {
	a.folder(path.Dir(name))
	a.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}, content)
}

func (a *archive) folder(name string) {
	if name == "." || slices.Contains(a.folders, name) {
		return
	}
	a.folder(path.Dir(name))
	a.folders = append(a.folders, name)
	a.add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, nil)
}

func (a *archive) add(header tar.Header, content []byte) {
	if a.err != nil {
		return
	}
	header.ModTime = a.at
	if a.err = a.WriteHeader(&header); a.err == nil {
		_, a.err = a.Write(content)
	}
}

func (a *archive) close() error {
	if a.err != nil {
		return a.err
	}
	return a.Close()
}
