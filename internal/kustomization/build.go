package kustomization

import (
	"fmt"
	"io/fs"
	"path"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Build renders the kustomization in folder root of file trees, each of which is below
// its prefix, and of files, path to content. All is read into memory first: kustomize
// insists on paths inside one root.
func Build(root string, trees map[string]fs.FS, files map[string]string) (resmap.ResMap, error) {
	memory := filesys.MakeFsInMemory()
	for prefix, tree := range trees {
		err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := fs.ReadFile(tree, name)
			if err != nil {
				return err
			}
			return memory.WriteFile(path.Join("/", prefix, name), content)
		})
		if err != nil {
			return nil, fmt.Errorf("reading the manifests of %s: %w", prefix, err)
		}
	}
	for name, content := range files {
		if err := memory.WriteFile(path.Join("/", name), []byte(content)); err != nil {
			return nil, fmt.Errorf("adding %s to the manifests: %w", name, err)
		}
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(memory, path.Join("/", root))
	if err != nil {
		return nil, fmt.Errorf("building the kustomization %s: %w", root, err)
	}
	return resources, nil
}
