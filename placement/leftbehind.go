package placement

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// leftBehind words that devices are allocated to pods that have gone, for a class that
// wants devices: they are about to be given back, and are counted nowhere else in a "no".
func (s *classSearch) leftBehind() (string, error) {
	if !s.claims.wantsDevices(s.class.Pod) {
		return "", nil
	}
	switch n, err := s.claims.devices.tracker.leftBehind(); {
	case err != nil:
		return "", err
	case n == 0:
		return "", nil
	case n == 1:
		return "; 1 device is still allocated to pods that have gone", nil
	default:
		return fmt.Sprintf("; %d devices are still allocated to pods that have gone", n), nil
	}
}

// wantsDevices says that the pod claims devices, or asks for a resource behind which there
// are some. Nil has none.
func (c *claims) wantsDevices(pod *v1.Pod) bool {
	return c != nil && c.devices != nil && (len(pod.Spec.ResourceClaims) > 0 || len(c.extended(pod)) > 0)
}
