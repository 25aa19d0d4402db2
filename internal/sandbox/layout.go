package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// layout names the files of one sandbox folder.
type layout struct{ dir string }

func (l layout) lock() string                    { return filepath.Join(l.dir, "lock") }
func (l layout) state() string                   { return filepath.Join(l.dir, "state.json") }
func (l layout) kubeconfig() string              { return filepath.Join(l.dir, "kubeconfig") }
func (l layout) etcd() string                    { return filepath.Join(l.dir, "etcd") }
func (l layout) pki(name string) string          { return filepath.Join(l.dir, "pki", name) }
func (l layout) config(name string) string       { return filepath.Join(l.dir, "config", name) }
func (l layout) logs() string                    { return filepath.Join(l.dir, "logs") }
func (l layout) log(component string) string     { return filepath.Join(l.logs(), component+".log") }
func (l layout) identity(who string) string      { return l.config(who + ".kubeconfig") }
func (l layout) certDir(component string) string { return filepath.Join(l.dir, "certs", component) }

// nodesFolder has what the GPU agents of the nodes read, in the sandbox's folder, in
// which all components run.
const nodesFolder = "nodes"

// folders are created before the first component starts.
func (l layout) folders() []string {
	return []string{l.dir, filepath.Join(l.dir, "pki"), filepath.Join(l.dir, "config"), filepath.Join(l.dir, "certs"), l.logs()}
}

// data lists what one run leaves behind and the next one must not find. Logs
// are kept until then: they are what one reads after a crash.
func (l layout) data() []string {
	return []string{l.state(), l.kubeconfig(), l.etcd(), filepath.Join(l.dir, "pki"), filepath.Join(l.dir, "config"), filepath.Join(l.dir, "certs"), filepath.Join(l.dir, nodesFolder)}
}

// claim creates the folder and refuses one that holds something else, because
// a run deletes what an earlier run left.
func (l layout) claim() error {
	entries, err := os.ReadDir(l.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the sandbox folder: %w", err)
	}
	if len(entries) > 0 {
		if _, err := os.Stat(l.lock()); err != nil {
			return fmt.Errorf("%s is not empty and is not a sandbox folder; choose another with --dir", l.dir)
		}
	}
	if err := os.MkdirAll(l.logs(), 0o700); err != nil {
		return fmt.Errorf("creating the sandbox folder: %w", err)
	}
	lock, err := os.OpenFile(l.lock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("creating the sandbox's lock file: %w", err)
	}
	return lock.Close()
}

// errLocked: another supervisor holds the folder.
var errLocked = errors.New("the folder is in use by a running sandbox")

// hold takes the folder's lock for as long as the returned file is open. The
// kernel drops the lock when the process ends, however it ends.
func (l layout) hold() (*os.File, error) {
	lock, err := os.OpenFile(l.lock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the sandbox's lock file: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("locking %s: %w", l.lock(), err)
	}
	return lock, nil
}

// removeData deletes what one run left, except its logs.
func (l layout) removeData() error {
	var errs []error
	for _, path := range l.data() {
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, fmt.Errorf("removing what an earlier run left: %w", err))
		}
	}
	return errors.Join(errs...)
}

// writeFile replaces path by content in one step: a reader sees the old file
// or the new one, never a part.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Chmod(mode), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
