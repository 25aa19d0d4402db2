package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// tailBytes bounds how much of a log is read to find its last lines.
const tailBytes = 64 << 10

// lastLines returns up to n last lines of a file, or one line that says why
// there are none.
func lastLines(path string, n int) []string {
	file, err := os.Open(path)
	if err != nil {
		return []string{fmt.Sprintf("(no log: %v)", err)}
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := file.Seek(-tailBytes, io.SeekEnd); err != nil {
			return []string{fmt.Sprintf("(unreadable log: %v)", err)}
		}
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return []string{fmt.Sprintf("(unreadable log: %v)", err)}
	}
	content = bytes.TrimRight(content, "\n")
	if len(content) == 0 {
		return []string{"(the log is empty)"}
	}
	lines := strings.Split(string(content), "\n")
	return lines[max(0, len(lines)-n):]
}

// copyLog writes the file to out and, with follow, what is added to it until
// ctx ends. A file that shrinks was started anew and is read from its start.
func copyLog(ctx context.Context, path string, out io.Writer, follow bool) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer file.Close()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var read int64
	for {
		n, err := io.Copy(out, file)
		if err != nil {
			return fmt.Errorf("copying the log %s: %w", path, err)
		}
		read += n
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil && info.Size() < read {
			if read, err = file.Seek(0, io.SeekStart); err != nil {
				return fmt.Errorf("rereading the log %s: %w", path, err)
			}
		}
	}
}
