// Command images makes the image of one of Muster's programs, as "make images-oci" asks.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/muster-gpu/muster/internal/ociimage"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	program := flag.String("program", "", "path of the program")
	name := flag.String("name", "", "name of the image, without a tag")
	version := flag.String("version", "", "version of the program, which is the image's tag too")
	revision := flag.String("revision", "", "commit that it was built from")
	user := flag.String("user", "65532:65532", "user and group that it runs as")
	created := flag.Int64("created", 0, "seconds since 1970 that are the time of the image")
	libraries := flag.String("libraries", "", "paths of what the program is linked to, for the same place in the image, with spaces between them")
	out := flag.String("out", "", "path of the archive")
	flag.Parse()

	called := path.Base(*name)
	image := ociimage.Image{
		Reference: *name + ":" + *version, Architecture: runtime.GOARCH,
		Files:      []ociimage.File{{Path: strings.TrimPrefix(called, "muster-"), Source: *program}},
		Entrypoint: []string{"/" + strings.TrimPrefix(called, "muster-")},
		User:       *user, Created: time.Unix(*created, 0),
		Labels: map[string]string{
			ocispec.AnnotationTitle: called, ocispec.AnnotationVersion: *version, ocispec.AnnotationRevision: *revision,
			ocispec.AnnotationCreated: time.Unix(*created, 0).UTC().Format(time.RFC3339), ocispec.AnnotationLicenses: "Apache-2.0",
		},
	}
	for _, library := range strings.Fields(*libraries) {
		image.Files = append(image.Files, ociimage.File{Path: strings.TrimPrefix(library, "/"), Source: library})
	}
	return write(*out, image)
}

// write says the image's digest on standard output.
func write(out string, image ociimage.Image) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("making the folder of %s: %w", out, err)
	}
	file, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("making the archive of %s: %w", image.Reference, err)
	}
	digest, err := ociimage.Write(file, image)
	if err = errors.Join(err, file.Close()); err != nil {
		// make would take a part of it for the whole.
		return errors.Join(fmt.Errorf("writing %s: %w", out, err), os.Remove(out))
	}
	fmt.Println(out, image.Reference, digest)
	return nil
}
