package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// processors is processor time by component of a sandbox.
type processors map[string]time.Duration

const (
	theAPIServer = "kube-apiserver"
	theBenchmark = "the benchmark"
)

// since is what was used after before.
func (p processors) since(before processors) processors {
	out := processors{}
	for name, used := range p {
		out[name] = used - before[name]
	}
	return out
}

// all is the sum.
func (p processors) all() (sum time.Duration) {
	for _, used := range p {
		sum += used
	}
	return sum
}

// ticksPerSecond is the unit of the kernel's accounts of processes on Linux.
const ticksPerSecond = 100

// processorOf is the processor time that a process has used so far: unlike the
// time on a clock, it does not depend on what else the machine does.
func processorOf(pid int) (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading the processor time: %w", err)
	}
	// The name, in parentheses, may hold spaces.
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	const user, system = 11, 12
	if len(fields) <= system {
		return 0, fmt.Errorf("%s has %d fields after the name", path, len(fields))
	}
	total := int64(0)
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", path, err)
		}
		total += n
	}
	return time.Duration(total) * time.Second / ticksPerSecond, nil
}
