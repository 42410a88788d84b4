// Package manifests holds what is applied to a cluster, for quorate install. The folders are kustomizations too.
package manifests

import "embed"

// Files are the kinds and the base installation.
//
//go:embed crds/*.yaml base/*.yaml
var Files embed.FS

// Folders are the kustomizations of manifests/default, in its order.
var Folders = []string{"crds", "base"}
