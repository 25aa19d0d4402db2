// Package ociimage makes a container image of programs that are built already, with no
// container engine, no base image and no network: one layer, as an archive of an OCI image
// layout, which containerd, Podman, skopeo and crane read. The same programs give the same
// bytes. Start from Write.
package ociimage
