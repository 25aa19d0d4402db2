package holders

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// ID is a device as it is known to the kubelet. It is comparable; two that are equal
// are one device, or one slice.
type ID struct {
	// UUID of a GPU or a slice, where the id has one.
	UUID string
	// Minor of /dev/nvidiaN, and GPUInstance of a slice of it, for ids that have no
	// UUID, as those of GKE's plugin. -1 where there is none.
	Minor, GPUInstance int
	// Driver, Pool and Device name a device of a resource claim.
	Driver, Pool, Device string
}

// maxIDLength is longer than any id of a plugin: two UUIDs and some numbers.
const maxIDLength = 253

var (
	// nvidia3, nvidia3/gi2, nvidia3/vgpu1, nvidia3/gi2/vgpu1: GKE's plugin.
	gkeID = regexp.MustCompile(`^nvidia([0-9]{1,4})(?:/gi([0-9]{1,4}))?(?:/vgpu([0-9]{1,4}))?$`)
	// GPU-<uuid>, MIG-<uuid>, and, of drivers before R470, MIG-GPU-<uuid>/<gi>/<ci>.
	uuidID = regexp.MustCompile(`^(?:GPU|MIG|MIG-GPU)-[0-9A-Za-z-]+(?:/[0-9]{1,4}/[0-9]{1,4})?$`)
)

// ParseID reads the id of a device plugin. Where the device is shared out, replica is
// the number of the share; else it is "".
func ParseID(text string) (id ID, replica string, err error) {
	if len(text) > maxIDLength {
		return ID{}, "", fmt.Errorf("device id %q... has %d characters", text[:32], len(text))
	}
	if parts := gkeID.FindStringSubmatch(text); parts != nil {
		id = ID{Minor: number(parts[1]), GPUInstance: -1}
		if parts[2] != "" {
			id.GPUInstance = number(parts[2])
		}
		return id, parts[3], nil
	}
	uuid, replica, shared := strings.Cut(text, "::")
	if !uuidID.MatchString(uuid) || shared && replica == "" {
		return ID{}, "", fmt.Errorf("device id %q has no form that is known", text)
	}
	return ID{UUID: uuid, Minor: -1, GPUInstance: -1}, replica, nil
}

// number is one that a pattern has found to be short and of digits.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

// String is for messages.
func (id ID) String() string {
	switch {
	case id.Driver != "":
		return id.Driver + "/" + id.Pool + "/" + id.Device
	case id.UUID != "":
		return id.UUID
	case id.GPUInstance >= 0:
		return fmt.Sprintf("nvidia%d/gi%d", id.Minor, id.GPUInstance)
	}
	return fmt.Sprintf("nvidia%d", id.Minor)
}
