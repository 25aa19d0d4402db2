//go:build cgo

package nvml

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// place is the NUMA node next to which a PCI device is, -1 where there is none, and its
// root complex, as Linux has them below that folder. bus is as NVML writes it, with
// eight digits of the domain, as "00000000:17:00.0".
func place(folder, bus string) (numa int, root string) {
	domain, rest, _ := strings.Cut(strings.ToLower(bus), ":")
	if len(domain) > 4 {
		domain = domain[len(domain)-4:]
	}
	at := filepath.Join(folder, domain+":"+rest)
	numa = -1
	if content, err := os.ReadFile(filepath.Join(at, "numa_node")); err == nil {
		if node, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil {
			numa = max(node, -1)
		}
	}
	path, err := filepath.EvalSymlinks(at)
	if err != nil {
		return numa, ""
	}
	for part := range strings.SplitSeq(path, string(filepath.Separator)) {
		if strings.HasPrefix(part, "pci") && strings.Contains(part, ":") {
			return numa, part
		}
	}
	return numa, ""
}

// connect finds which whole GPUs reach each other by NVLink, directly or through
// switches, unless that is known. An island is named by the first of its GPUs, by UUID.
func (d *Driver) connect(units []*unit) {
	var gpus []*unit
	for _, u := range units {
		if u.device.Parent == "" {
			gpus = append(gpus, u)
		}
	}
	d.mu.Lock()
	whole := 0
	for _, u := range d.units {
		if u.device.Parent == "" {
			whole++
		}
	}
	same := whole == len(gpus) && !slices.ContainsFunc(gpus, func(u *unit) bool { return d.units[u.device.UUID] != u })
	d.mu.Unlock()
	if same || !d.has("nvmlDeviceGetP2PStatus") {
		return
	}
	peers := make([][]string, len(gpus))
	for i, a := range gpus {
		for j, b := range gpus[:i] {
			status, ret := a.gpu.GetP2PStatus(b.gpu, nvml.P2P_CAPS_INDEX_NVLINK)
			if ret == nvml.SUCCESS && status == nvml.P2P_STATUS_OK {
				peers[i], peers[j] = append(peers[i], b.device.UUID), append(peers[j], a.device.UUID)
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, u := range gpus {
		u.device.Peers, u.device.Island = peers[i], ""
		if len(peers[i]) > 0 {
			u.device.Island = min(u.device.UUID, slices.Min(peers[i]))
		}
	}
}
